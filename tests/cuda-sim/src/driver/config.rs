//! Configuration of the simulated driver, read from environment variables.
//!
//! Invariant: the first call reads the variables once. A value that cannot be parsed is an error, never a
//! default.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::code::{self, Code};
use super::facts::Facts;

/// Newest PTX version of each CUDA version, from NVIDIA's release history of the PTX ISA.
const PTX_OF_CUDA: [(u32, (u32, u32)); 22] = [
    (9_000, (6, 0)),
    (9_010, (6, 1)),
    (9_020, (6, 2)),
    (10_000, (6, 3)),
    (10_010, (6, 4)),
    (10_020, (6, 5)),
    (11_000, (7, 0)),
    (11_010, (7, 1)),
    (11_020, (7, 2)),
    (11_030, (7, 3)),
    (11_040, (7, 4)),
    (11_050, (7, 5)),
    (11_060, (7, 6)),
    (11_070, (7, 7)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_060, (8, 5)),
];

/// Parsed environment.
#[derive(Debug)]
pub(super) struct Config {
    /// Number of devices.
    pub(super) devices: usize,
    /// Properties of each device.
    pub(super) facts: Facts,
    /// Version that `cuDriverGetVersion` returns.
    pub(super) driver: u32,
    /// Destination of the lines about launches. None writes no lines.
    pub(super) report: Option<Sink>,
    /// Calls that fail on purpose.
    pub(super) failures: Failures,
}

/// Destination of a report.
#[derive(Debug)]
pub(super) enum Sink {
    /// Standard error, written `-`.
    Stderr,
    /// File that lines are appended to.
    File(PathBuf),
}

impl Config {
    /// Parses the variables that `get` returns. `known` returns true for names of functions of the library.
    pub(super) fn read(
        get: impl Fn(&str) -> Option<String>,
        known: impl Fn(&str) -> bool,
    ) -> Result<Config, String> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let arch = number(&get, "CUDA_SIM_ARCH", 90)?;
        let memory = number(&get, "CUDA_SIM_MEMORY", 4 << 30)?;
        let arch = u32::try_from(arch).ok().and_then(|arch| Facts::of(arch, memory));
        let driver = number(&get, "CUDA_SIM_DRIVER", 13_000)?;
        Ok(Config {
            devices: devices(number(&get, "CUDA_SIM_DEVICES", 1)?)?,
            facts: arch.ok_or_else(|| format!("CUDA_SIM_ARCH: none of {:?}", Facts::ARCHES))?,
            driver: u32::try_from(driver).ok().filter(|&driver| newest_ptx(driver).is_some()).ok_or_else(
                || format!("CUDA_SIM_DRIVER: {driver} is no CUDA version from 9000 on, such as 12040"),
            )?,
            report: get("CUDA_SIM_REPORT")
                .map(|place| if place == "-" { Sink::Stderr } else { Sink::File(place.into()) }),
            failures: Failures::parse(&get("CUDA_SIM_FAIL").unwrap_or_default(), known)?,
        })
    }

    /// Returns the newest PTX version that the driver reads.
    pub(super) fn ptx(&self) -> (u32, u32) {
        newest_ptx(self.driver).unwrap_or_else(|| unreachable!("a version without PTX was refused"))
    }
}

fn devices(count: u64) -> Result<usize, String> {
    match usize::try_from(count) {
        Ok(count @ 0..=16) => Ok(count),
        Ok(_) | Err(_) => Err(format!("CUDA_SIM_DEVICES: {count} is more than 16")),
    }
}

fn number(get: &impl Fn(&str) -> Option<String>, name: &str, default: u64) -> Result<u64, String> {
    match get(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{name}: {text:?} is no number")),
    }
}

fn newest_ptx(driver: u32) -> Option<(u32, u32)> {
    match driver {
        // PTX 9 counts with CUDA 13: CUDA 13.0 has PTX 9.0.
        13_000..14_000 => Some((9, driver % 1000 / 10)),
        12_070..13_000 => Some((8, driver % 1000 / 10 - 1)),
        9_000..12_070 => PTX_OF_CUDA.iter().rev().find(|(version, _)| *version <= driver).map(|row| row.1),
        _ => None,
    }
}

/// Calls that fail on purpose, parsed from rules that commas separate.
///
/// `cuMemAlloc_v2:3=2` makes the third call of that function fail with code 2. `cuMemAlloc_v2:3+=2` makes the
/// third call and all later ones fail.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<String, Plan>);

#[derive(Debug, Default)]
struct Plan {
    calls: AtomicU64,
    strikes: Vec<Strike>,
}

#[derive(Clone, Copy, Debug)]
struct Strike {
    first: u64,
    last: u64,
    code: Code,
}

impl Failures {
    fn parse(text: &str, known: impl Fn(&str) -> bool) -> Result<Failures, String> {
        let mut plans = BTreeMap::<String, Plan>::new();
        for rule in text.split(',').filter(|rule| !rule.is_empty()) {
            let (name, strike) = rule_of(rule).ok_or_else(|| {
                format!("CUDA_SIM_FAIL: {rule:?} is not FUNCTION:CALL=CODE, such as cuMemAlloc_v2:3=2")
            })?;
            if !known(name) {
                return Err(format!("CUDA_SIM_FAIL: {name:?} is no function of the simulated driver"));
            }
            plans.entry(name.to_owned()).or_default().strikes.push(strike);
        }
        Ok(Failures(plans))
    }

    /// Counts a call of a function, and returns the code that the call fails with, if any.
    pub(super) fn strike(&self, name: &str) -> Option<Code> {
        let plan = self.0.get(name)?;
        let call = plan.calls.fetch_add(1, Ordering::Relaxed) + 1;
        plan.strikes
            .iter()
            .find(|strike| (strike.first..=strike.last).contains(&call))
            .map(|strike| strike.code)
    }
}

fn rule_of(rule: &str) -> Option<(&str, Strike)> {
    let (name, rest) = rule.split_once(':')?;
    let (call, code) = rest.split_once('=')?;
    let (call, on) = call.strip_suffix('+').map_or((call, false), |call| (call, true));
    let first = call.parse().ok().filter(|&call| call > 0)?;
    let number: i32 = code.parse().ok().filter(|&number| number != 0 && code::is_known(number))?;
    Some((name, Strike { first, last: if on { u64::MAX } else { first }, code: Code(number) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, String> {
        let get = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Config::read(get, |name| name == "cuInit" || name == "cuMemAlloc_v2")
    }

    #[test]
    fn nothing_said_is_the_default_device() {
        let config = read(&[]).unwrap();
        assert_eq!((config.devices, config.driver, config.ptx()), (1, 13_000, (9, 0)));
        assert_eq!((config.facts.arch, config.facts.memory), (90, 4 << 30));
        assert!(config.report.is_none() && config.failures.strike("cuInit").is_none());
    }

    #[test]
    fn drivers_read_the_ptx_of_their_time() {
        for (driver, ptx) in [
            ("9000", (6, 0)),
            ("11040", (7, 4)),
            ("12060", (8, 5)),
            ("12070", (8, 6)),
            ("12090", (8, 8)),
            ("13010", (9, 1)),
        ] {
            assert_eq!(read(&[("CUDA_SIM_DRIVER", driver)]).unwrap().ptx(), ptx, "{driver}");
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for (name, value, expect) in [
            ("CUDA_SIM_DEVICES", "some", "no number"),
            ("CUDA_SIM_DEVICES", "17", "more than 16"),
            ("CUDA_SIM_ARCH", "42", "none of"),
            ("CUDA_SIM_DRIVER", "400", "no CUDA version"),
            ("CUDA_SIM_DRIVER", "14000", "no CUDA version"),
            ("CUDA_SIM_MEMORY", "4G", "no number"),
            ("CUDA_SIM_FAIL", "cuInit", "is not FUNCTION"),
            ("CUDA_SIM_FAIL", "cuInit:0=1", "is not FUNCTION"),
            ("CUDA_SIM_FAIL", "cuInit:1=12345", "is not FUNCTION"),
            ("CUDA_SIM_FAIL", "cuFly:1=1", "no function"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name) && error.contains(expect), "{name}={value}: {error}");
        }
    }

    #[test]
    fn the_calls_named_fail_and_no_others() {
        let text = "cuMemAlloc_v2:2=2,cuMemAlloc_v2:4+=700,cuInit:1=100";
        let failures = read(&[("CUDA_SIM_FAIL", text)]).unwrap().failures;
        let answers: Vec<_> =
            (0..6).map(|_| failures.strike("cuMemAlloc_v2").map_or(0, |code| code.0)).collect();
        assert_eq!(answers, [0, 2, 0, 700, 700, 700]);
        assert_eq!(failures.strike("cuInit"), Some(Code(100)));
        assert_eq!(failures.strike("cuInit"), None);
    }
}
