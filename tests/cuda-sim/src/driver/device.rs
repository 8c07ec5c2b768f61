//! Initialization of the driver, its version, and properties of devices.

use std::ffi::c_char;

use super::code::Code;
use super::entry::{Answer, Out, exports};
use super::state;

/// Name that `cuDeviceGetName` returns.
pub(super) const NAME: &str = "CUDA simulator";

fn start(flags: u32) -> Answer {
    let driver = state::driver()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if driver.devices.is_empty() {
        return Err(Code::NO_DEVICE);
    }
    driver.initialize();
    Ok(())
}

fn write_name(place: *mut c_char, len: i32) -> Answer {
    let room = usize::try_from(len).ok().filter(|&room| room > 0).ok_or(Code::INVALID_VALUE)?;
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let text: Vec<u8> = NAME.bytes().take(room - 1).chain([0]).collect();
    // SAFETY: the call's contract is that the place has the length given. The text with its NUL does not
    // exceed that length.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    Ok(())
}

exports! {
    /// Initializes the driver. Without a device the call fails with `CUDA_ERROR_NO_DEVICE`, as NVIDIA's does.
    cuInit(flags: u32) always || start(flags);

    /// Returns the CUDA version of the driver: 13000 is 13.0.
    cuDriverGetVersion(version: Out<i32>) always || version.set(state::driver()?.config.driver as i32);

    /// Returns the number of devices.
    cuDeviceGetCount(count: Out<i32>) driver |driver| count.set(driver.devices.len() as i32);

    /// Returns the device of an ordinal.
    cuDeviceGet(device: Out<i32>, number: i32) driver |driver| {
        driver.device(number)?;
        device.set(number)
    };

    /// Writes the name of a device, truncated to a length.
    cuDeviceGetName(name: *mut c_char, len: i32, device: i32) driver |driver| {
        driver.device(device)?;
        write_name(name, len)
    };

    /// Returns the UUID of a device: 16 bytes, each of them its ordinal.
    cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) driver |driver| {
        driver.device(device)?;
        uuid.set([device as u8; 16])
    };

    /// Returns the same UUID under CUDA's second name.
    cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) driver |driver| {
        driver.device(device)?;
        uuid.set([device as u8; 16])
    };

    /// Returns the bytes of a device's memory.
    cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) driver |driver| {
        driver.device(device)?;
        bytes.set(driver.config.facts.memory as usize)
    };

    /// Returns an attribute of a device.
    cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) driver |driver| {
        driver.device(device)?;
        value.set(driver.config.facts.attribute(attribute)?)
    };
}
