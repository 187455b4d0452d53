//! Photographs to the inputs of a tower, as its published preprocessing has it.
//!
//! Input: PNG or JPEG files, a model's image and patch sizes. Output: patches `[tokens, (y, x,
//! channel)]` of each image, one after another.
//! Invariants: RGB, without alpha; bicubic with a = -0.5 and the filter widened where it shrinks,
//! to the whole square, so that neither crop nor aspect matter; `(value / 255 - 0.5) / 0.5`. What
//! is left after whole patches is dropped.
//! Not here: rounding to F16 (the fixture's), running.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::imageops::{FilterType, resize};
use image::{ImageError, ImageReader, Limits, RgbImage};
use ipu_model::ModelSpec;
use ipu_model::spec::SiglipVision;
use ipub_base::Diagnostic;
use ipub_engine::{Engine, Request, Value};
use ipub_stages::{Array, decode_graph};

use super::build::outputs;
use crate::files;

/// Bounds of what is decoded.
const EDGE_MAX: u32 = 16_384;
const DECODED_BYTES_MAX: u64 = 1 << 30;
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The inputs that the images are for the target of a request.
pub fn inputs(engine: &Engine, request: &Request, images: &[PathBuf]) -> Result<Array, Diagnostic> {
    let mut lower = request.clone();
    let [graph] = outputs(engine, &mut lower, [("lower", "graph")])?;
    let graph = decode_graph(&graph).map_err(|failure| failure.diagnostic())?;
    let spec = tower(engine, request)?;
    let shape = &graph.value(graph.top.args[0]).shape;
    let (rows, tokens) = (shape[0], spec.tokens());
    let batch = (rows / tokens) as usize;
    if !images.len().is_multiple_of(batch) {
        let message = format!(
            "{} images for {}, whose batch is {batch}",
            images.len(),
            request.label
        );
        let help = format!("give --image {batch} times, or a multiple of that");
        return Err(Diagnostic::usage(message).help(help));
    }
    let mut elements = Vec::with_capacity(images.len() * (tokens * shape[1]) as usize);
    for path in images {
        patches(&spec, &squared(&decoded(path)?, spec.image), &mut elements);
    }
    let shape = vec![images.len() as u64 * u64::from(tokens), u64::from(shape[1])];
    Ok(Array { shape, elements })
}

/// The specification of a target that takes images.
fn tower(engine: &Engine, request: &Request) -> Result<SiglipVision, Diagnostic> {
    let target = engine.workspace().target(&request.label, &request.sets)?;
    let spec = target.attributes.get("spec").map(|spec| &spec.value);
    let Some(Value::Text(spec)) = spec else {
        return Err(Diagnostic::usage(format!(
            "{} has no `spec`",
            request.label
        )));
    };
    let root = &engine.workspace().root;
    let path = match spec.strip_prefix("//") {
        Some(rooted) => root.join(rooted),
        None => root.join(&request.label.package).join(spec),
    };
    let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
    match ModelSpec::parse(&text) {
        Ok(ModelSpec::SiglipVision(spec)) => Ok(spec),
        Ok(_) => {
            let message = format!("{} is one operator and takes no images", request.label);
            Err(Diagnostic::usage(message).help("give its inputs as npy, by --input"))
        }
        Err(error) => Err(Diagnostic::usage(format!("{}: {error}", path.display()))),
    }
}

/// The pixels of a file.
fn decoded(path: &Path) -> Result<RgbImage, Diagnostic> {
    let refuse = |why: String| Diagnostic::usage(format!("{}: {why}", path.display()));
    let too_large = || {
        let bound = format!("at most {EDGE_MAX} x {EDGE_MAX} pixels");
        refuse(format!("the image is too large: {bound} are decoded"))
    };
    if std::fs::metadata(path).is_ok_and(|facts| facts.len() > FILE_BYTES_MAX) {
        return Err(too_large());
    }
    let bytes = files::read(path)?;
    let reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format();
    let mut reader = reader.map_err(|error| refuse(error.to_string()))?;
    if reader.format().is_none() {
        return Err(refuse("it is not a PNG or JPEG image".to_owned()));
    }
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(EDGE_MAX);
    limits.max_image_height = Some(EDGE_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    match reader.decode() {
        Ok(image) => Ok(image.to_rgb8()),
        Err(ImageError::Limits(_)) => Err(too_large()),
        Err(error) => Err(refuse(format!("it is not a PNG or JPEG image: {error}"))),
    }
}

fn squared(image: &RgbImage, edge: u32) -> RgbImage {
    resize(image, edge, edge, FilterType::CatmullRom)
}

/// Appends the patches of a square image, row by row.
fn patches(spec: &SiglipVision, image: &RgbImage, elements: &mut Vec<f32>) {
    let (grid, patch) = (spec.grid(), spec.patch);
    for patch_y in 0..grid {
        for patch_x in 0..grid {
            for y in 0..patch {
                for x in 0..patch {
                    let pixel = image.get_pixel(patch_x * patch + x, patch_y * patch + y);
                    elements.extend(pixel.0.map(normal));
                }
            }
        }
    }
}

fn normal(value: u8) -> f32 {
    (f32::from(value) / 255.0 - 0.5) / 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of the pixels of one axis for output `at`: the published definition, in F64.
    fn weights(from: u32, to: u32, at: u32) -> Vec<f64> {
        let scale = f64::from(from) / f64::from(to);
        let wide = scale.max(1.0);
        let centre = (f64::from(at) + 0.5) * scale;
        let kernel = |x: f64| {
            let x = x.abs();
            match x {
                x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
                x if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
                _ => 0.0,
            }
        };
        let weight = |pixel: u32| kernel((f64::from(pixel) + 0.5 - centre) / wide);
        let all: Vec<f64> = (0..from).map(weight).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn resizing_is_bicubic_in_both_directions() {
        for (width, height, edge) in [(61, 40, 28), (9, 14, 28), (28, 28, 28), (200, 3, 28)] {
            let mut state = 7_u32;
            let image = RgbImage::from_fn(width, height, |_, _| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                image::Rgb([state >> 24, state >> 16 & 255, 255 - (state >> 24)].map(|v| v as u8))
            });
            let found = squared(&image, edge);
            for (x, y, pixel) in found.enumerate_pixels() {
                let (across, down) = (weights(width, edge, x), weights(height, edge, y));
                for channel in 0..3 {
                    let mut sum = 0.0;
                    for (v, b) in (0..).zip(&down) {
                        for (u, a) in (0..).zip(&across) {
                            sum += a * b * f64::from(image.get_pixel(u, v).0[channel]);
                        }
                    }
                    let expected = sum.clamp(0.0, 255.0);
                    let found = f64::from(pixel.0[channel]);
                    assert!(
                        (found - expected).abs() < 1.01,
                        "{width} x {height}: {x}, {y}"
                    );
                }
            }
        }
    }

    #[test]
    fn values_are_normalised_to_one() {
        assert_eq!([0, 255].map(normal), [-1.0, 1.0]);
        assert!((normal(128) - 1.0 / 255.0).abs() < 1e-6);
    }
}
