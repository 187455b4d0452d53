//! `ipub run --image`: photographs to outputs.

mod world;

use std::fs;

use image::{Rgb, RgbImage, Rgba, RgbaImage};
use ipub_stages::Array;
use world::{Ran, TINY, World};

/// Edge of the tiny tower's image, and of its patches.
const EDGE: u32 = 28;
const PATCH: u32 = 14;

fn pattern(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        Rgb([9 * x + y, 5 * y + 40, x * y].map(|value| (value % 256) as u8))
    })
}

/// Patches of an image, as the host packs them: patch row and column, then y, x, channel.
fn packed(image: &RgbImage) -> Vec<f32> {
    let mut elements = Vec::new();
    for index in 0..(EDGE / PATCH).pow(2) {
        let (top, left) = (
            index / (EDGE / PATCH) * PATCH,
            index % (EDGE / PATCH) * PATCH,
        );
        for y in top..top + PATCH {
            for x in left..left + PATCH {
                let pixel = image.get_pixel(x, y).0;
                elements.extend(pixel.map(|value| f32::from(value) / 127.5 - 1.0));
            }
        }
    }
    elements
}

fn run(world: &World, images: &[&str], output: &str) -> Ran {
    let mut args = vec!["run", TINY, "-o", output];
    args.extend(images.iter().flat_map(|image| ["--image", image]));
    world.ipub(&args)
}

fn outputs(world: &World, file: &str) -> Array {
    Array::from_npy(&fs::read(world.path(file)).unwrap()).unwrap()
}

#[test]
fn images_give_what_their_packed_patches_give() {
    let world = World::new();
    let image = pattern(EDGE, EDGE);
    image.save(world.path("a.png")).unwrap();
    let array = Array {
        shape: vec![4, 588],
        elements: packed(&image),
    };
    fs::write(world.path("a.npy"), array.to_npy().unwrap()).unwrap();
    let packed = ["run", TINY, "--input", "a.npy", "-o", "packed.npy"];
    world.ipub(&packed).succeeds();
    run(&world, &["a.png"], "a_out.npy").succeeds();
    assert_eq!(outputs(&world, "a_out.npy"), outputs(&world, "packed.npy"));

    // Alpha is dropped; other sizes and formats are taken; each image is an invocation.
    let clear = |x, y| {
        Rgba([
            image.get_pixel(x, y).0[0],
            image.get_pixel(x, y).0[1],
            image.get_pixel(x, y).0[2],
            7,
        ])
    };
    let transparent = RgbaImage::from_fn(EDGE, EDGE, clear);
    transparent.save(world.path("alpha.png")).unwrap();
    pattern(100, 50).save(world.path("wide.jpg")).unwrap();
    run(&world, &["alpha.png", "wide.jpg"], "two.npy").succeeds();
    let two = outputs(&world, "two.npy");
    assert_eq!(two.shape[0], 2);
    let (first, second) = two.elements.split_at(two.elements.len() / 2);
    assert_eq!(first, outputs(&world, "a_out.npy").elements);
    assert!(second.iter().all(|element| element.is_finite()) && first != second);
}

#[test]
fn wrong_images_are_told() {
    let world = World::new();
    let file = |name: &str, bytes: &[u8]| fs::write(world.path(name), bytes).unwrap();
    file("text.png", b"no image");
    run(&world, &["text.png"], "out.npy").fails(1, &["text.png", "not a PNG or JPEG image"]);
    run(&world, &["absent.png"], "out.npy").fails(1, &["absent.png"]);
    pattern(EDGE, EDGE).save(world.path("a.png")).unwrap();
    let whole = fs::read(world.path("a.png")).unwrap();
    file("cut.png", &whole[..whole.len() / 2]);
    run(&world, &["cut.png"], "out.npy").fails(1, &["cut.png", "not a PNG or JPEG image"]);
    RgbImage::new(20_000, 1)
        .save(world.path("long.png"))
        .unwrap();
    run(&world, &["long.png"], "out.npy").fails(1, &["long.png", "too large", "16384"]);

    let two = ["run", "//models:siglip-tiny-bs2", "--image", "a.png"];
    let words = ["1 images", "batch is 2", "--image 2 times"];
    world.ipub(&two).fails(1, &words);
    let operator = ["run", "//models:mlp-b1", "--image", "a.png"];
    world
        .ipub(&operator)
        .fails(1, &["takes no images", "--input"]);
    let both = ["run", TINY, "--image", "a.png", "--input", "a.npy"];
    world
        .ipub(&both)
        .fails(1, &["--input", "cannot be used with"]);
    world.ipub(&["run", TINY]).fails(1, &["--input <FILE.npy>"]);
    assert!(!world.path("out.npy").exists());
}
