//! Graph to mid by a recipe: grids, layouts, cast sites, precision.
