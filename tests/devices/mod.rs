//! The devices that tests run on: the one place that lists them.
//!
//! A device that this build or machine lacks is said on stderr and left out, unless `FUSION_REQUIRE_WGPU=1` or
//! `FUSION_REQUIRE_CUDA=1` asks for it. `FUSION_TEST_DEVICES=cpu,cuda` leaves out the others.
#![allow(dead_code, reason = "each test crate that includes this uses a part of it")]

use fusion::{Device, Result};

/// A way to run kernels, with promises of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Native loops.
    Cpu,
    /// WGSL.
    Wgpu,
    /// PTX.
    Cuda,
}

impl Kind {
    /// All of them; the CPU, which is always there, comes first.
    pub(crate) const ALL: [Kind; 3] = [Kind::Cpu, Kind::Wgpu, Kind::Cuda];

    /// Those that are not left out. A name that no device has is no reason to run nothing.
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

    /// The device, if there is one and it is wanted.
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

/// All devices there are.
pub(crate) fn devices() -> Vec<(Kind, Device)> {
    Kind::ALL.into_iter().filter_map(|kind| kind.open().map(|device| (kind, device))).collect()
}

/// The GPUs there are.
pub(crate) fn gpus() -> Vec<Device> {
    devices().into_iter().filter(|(kind, _)| *kind != Kind::Cpu).map(|(_, device)| device).collect()
}

/// The devices that are held to every bit of IEEE, NaN, infinities and the signs of zeros included: all but WGSL's.
pub(crate) fn exact_devices() -> Vec<Device> {
    devices().into_iter().filter(|(kind, _)| *kind != Kind::Wgpu).map(|(_, device)| device).collect()
}

/// Runs a test on each device.
pub(crate) fn on_devices(test: impl Fn(&Device) -> Result<()>) {
    for (_, device) in devices() {
        test(&device).unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}
