//! Prints the devices of this machine, and the choice of `Device::best()`.

use fusion::Device;

fn main() {
    println!("best: {}", Device::best());
    println!("CPU:  {}", Device::cpu());
    for (kind, device) in [("wgpu", Device::wgpu()), ("CUDA", Device::cuda(0))] {
        match device {
            Ok(device) => println!("{kind}: {device}, {:?}", device.facts()),
            Err(error) => println!("{kind}: {error}"),
        }
    }
}
