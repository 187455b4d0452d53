//! The .ipuexe format: types, writer, bounded reader, checker.
