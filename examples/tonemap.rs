//! Develops a photograph in one fused kernel: exposure, white balance, a filmic curve, saturation, sRGB. A radius in
//! pixels blurs it.
//!
//! `cargo run --release --example tonemap -- examples/data/chelsea.png developed.png 3`

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::time::Instant;

use fusion::prelude::*;

fuse! {
    /// Develops an sRGB photograph, 0 to 1, like a film. `gain` is the white balance, `luma` the weight of
    /// each channel in a grey. `exposure` is in stops. A `saturation` of 1 changes nothing.
    pub fn develop(
        photo: f32[H, W, C = 3],
        gain: f32[C],
        luma: f32[C],
        exposure: f32,
        saturation: f32,
    ) -> f32[H, W, C] {
        let light = to_linear(photo) * gain * exp2(exposure);
        let film = filmic(light);
        let grey = sum(film * luma, C);
        to_srgb(clamp(lerp(grey, film, saturation), 0.0, 1.0))
    }

    /// Averages the neighbours of each pixel in linear light, with weights that add up to 1. Pixels outside of the picture
    /// are black.
    pub fn blurred(photo: f32[H, W, C = 3], weights: f32[KH, KW]) -> f32[P, Q, C] {
        to_srgb(conv(to_linear(photo), weights, (H, KH) -> P, (W, KW) -> Q, padding = same))
    }

    /// IEC 61966-2-1.
    fn to_linear(x) {
        if x <= 0.04045 { x / 12.92 } else { pow((x + 0.055) / 1.055, 2.4) }
    }

    /// The inverse of `to_linear`.
    fn to_srgb(x) {
        if x <= 0.0031308 { 12.92 * x } else { 1.055 * pow(x, 1.0 / 2.4) - 0.055 }
    }

    /// Narkowicz's fit of the ACES film curve (2016).
    fn filmic(x) {
        clamp(x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 0.0, 1.0)
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (input, output, radius) = match &args[..] {
        [input, output] => (input, output, 0),
        [input, output, radius] => (input, output, radius.parse()?),
        _ => return Err("usage: tonemap IN.png OUT.png [RADIUS]".into()),
    };
    let (shape, pixels) = read(input)?;

    let device = Device::best();
    let photo = Tensor::from_slice(&device, &pixels, shape)?;
    let gain = Tensor::from_slice(&device, &[1.06, 1.0, 0.92], [3])?;
    let luma = Tensor::from_slice(&device, &[0.2126, 0.7152, 0.0722], [3])?;
    let mut developed = Tensor::zeros(&device, shape)?;
    develop::into(&mut developed, &photo, &gain, &luma, 0.1, 1.25)?;
    device.synchronize()?;
    let start = Instant::now();
    develop::into(&mut developed, &photo, &gain, &luma, 0.1, 1.25)?;
    device.synchronize()?;
    let time = start.elapsed();

    let [height, width, _] = shape;
    println!("device: {}", device.name());
    println!("{}", develop::report().bind(&[("H", height), ("W", width)])?);
    println!("{width} x {height} pixels in {time:.2?}");
    if radius > 0 {
        let side = 2 * radius + 1;
        developed = blurred(&developed, &Tensor::from_slice(&device, &gaussian(radius), [side, side])?)?;
    }
    write(output, shape, &developed.to_vec()?)
}

/// Returns the weights of a Gaussian up to two standard deviations, row by row. They add up to 1.
fn gaussian(radius: usize) -> Vec<f32> {
    let weight = |at: usize| (-2.0 * ((at as f32 - radius as f32) / radius as f32).powi(2)).exp();
    let side = 0..=2 * radius;
    let sum: f32 = side.clone().map(weight).sum();
    side.clone()
        .flat_map(|row| side.clone().map(move |col| weight(row) * weight(col) / (sum * sum)))
        .collect()
}

/// Reads the channels of an 8-bit RGB or RGBA picture, from 0 to 1, without transparency.
fn read(path: &str) -> std::result::Result<([usize; 3], Vec<f32>), Box<dyn Error>> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let size = reader.output_buffer_size().ok_or("the picture is too large")?;
    let mut bytes = vec![0; size];
    let info = reader.next_frame(&mut bytes)?;
    let channels = match (info.color_type, info.bit_depth) {
        (png::ColorType::Rgb, png::BitDepth::Eight) => 3,
        (png::ColorType::Rgba, png::BitDepth::Eight) => 4,
        (color, depth) => {
            return Err(format!("{path} is {color:?} of {depth:?} bits; 8-bit RGB is wanted").into());
        }
    };
    let pixels = bytes[..info.buffer_size()].chunks_exact(channels).flat_map(|pixel| &pixel[..3]);
    let pixels = pixels.map(|&channel| f32::from(channel) / 255.0).collect();
    Ok(([info.height as usize, info.width as usize, 3], pixels))
}

fn write(
    path: &str,
    [height, width, _]: [usize; 3],
    pixels: &[f32],
) -> std::result::Result<(), Box<dyn Error>> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let bytes: Vec<u8> = pixels.iter().map(|channel| (channel * 255.0).round() as u8).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    Ok(writer.finish()?)
}
