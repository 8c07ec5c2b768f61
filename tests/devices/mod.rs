//! The devices that tests run on, listed in this one place.
//!
//! A device that this build or machine lacks is left out with a note on stderr. With `FUSION_REQUIRE_WGPU=1`
//! or `FUSION_REQUIRE_CUDA=1` its absence is an error. `FUSION_TEST_DEVICES=cpu,cuda` leaves out the other
//! devices.
#![allow(dead_code, reason = "each test crate that includes this uses a part of it")]

use fusion::{Device, Result};

/// A kind of device, with its own promises on numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The CPU, with native loops.
    Cpu,
    /// A GPU through WGSL.
    Wgpu,
    /// A GPU through PTX.
    Cuda,
}

impl Kind {
    /// All kinds. The CPU, which is always there, comes first.
    pub(crate) const ALL: [Kind; 3] = [Kind::Cpu, Kind::Wgpu, Kind::Cuda];

    /// Returns the kinds that the environment does not leave out. An unknown name does not exclude all
    /// devices.
    fn wanted() -> Vec<Kind> {
        let names = std::env::var("FUSION_TEST_DEVICES").unwrap_or_default();
        if names.trim().is_empty() {
            return Kind::ALL.to_vec();
        }
        let named =
            |name: &str| Kind::ALL.into_iter().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name));
        let kinds = names.split(',').map(|name| {
            named(name.trim())
                .unwrap_or_else(|| panic!("FUSION_TEST_DEVICES={names}: `{name}` is none of {:?}", Kind::ALL))
        });
        kinds.collect()
    }

    /// Opens the device, if there is one and the environment wants it.
    pub(crate) fn open(self) -> Option<Device> {
        if !Kind::wanted().contains(&self) {
            return None;
        }
        let (device, require) = match self {
            Kind::Cpu => return Some(Device::cpu()),
            Kind::Wgpu => (Device::wgpu(), "FUSION_REQUIRE_WGPU"),
            Kind::Cuda => (Device::cuda(0), "FUSION_REQUIRE_CUDA"),
        };
        match device {
            Ok(device) => Some(device),
            Err(error) if std::env::var(require).as_deref() == Ok("1") => panic!("{require}: {error}"),
            Err(error) => {
                eprintln!("SKIPPED on {self:?}: {error}");
                None
            }
        }
    }
}

/// Opens all devices of this machine.
pub(crate) fn devices() -> Vec<(Kind, Device)> {
    Kind::ALL.into_iter().filter_map(|kind| kind.open().map(|device| (kind, device))).collect()
}

/// Opens the GPUs of this machine.
pub(crate) fn gpus() -> Vec<Device> {
    devices().into_iter().filter(|(kind, _)| *kind != Kind::Cpu).map(|(_, device)| device).collect()
}

/// Opens the devices that follow every bit of IEEE, with NaN, infinities and the signs of zeros: all but
/// those of WGSL.
pub(crate) fn exact_devices() -> Vec<Device> {
    devices().into_iter().filter(|(kind, _)| *kind != Kind::Wgpu).map(|(_, device)| device).collect()
}

/// Runs a test on each device.
pub(crate) fn on_devices(test: impl Fn(&Device) -> Result<()>) {
    for (_, device) in devices() {
        test(&device).unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}
