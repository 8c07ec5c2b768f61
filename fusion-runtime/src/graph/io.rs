//! The I/O of a graph before and after fusion, and a gate that decides by the time that fusion gains.
//!
//! Bandwidths are bytes per nanosecond, which are GB/s.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fusion_compiler::ir::plan::{Dest, Target};

use super::{Fused, Graph};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::Plan;
use crate::report::Report;
use crate::tensor::Tensor;

/// The launches, waits and bytes of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphIoProfile {
    /// Number of kernel launches.
    pub kernel_launches: usize,
    /// Number of nodes that run on the host, for which the device waits.
    pub sync_points: usize,
    /// Bytes of results that the host reads.
    pub host_output_bytes: u64,
    /// Bytes that kernels read and write on the device.
    pub device_traffic_bytes: u64,
}

/// The difference of two profiles. Positive numbers are savings of the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusionBenefit {
    /// Number of launches saved.
    pub launches_saved: isize,
    /// Number of waits saved.
    pub sync_points_saved: isize,
    /// Bytes that the host need not read.
    pub host_readback_bytes_saved: i64,
    /// Bytes that kernels need not move.
    pub device_traffic_bytes_saved: i64,
}

impl FusionBenefit {
    /// Returns the nanoseconds that the savings are worth, by the formula of the proposal.
    ///
    /// The formula divides bytes by at least 1 byte per nanosecond. On a device with unified memory, where the
    /// host reads results in place, it still charges a nanosecond for each byte. `IoFusionGate::cost_ns` does
    /// not.
    pub fn score_ns(
        &self,
        dispatch_ns: f64,
        roundtrip_ns: f64,
        memory_bw: f64,
        host_readback_bw: f64,
        unified_memory: bool,
    ) -> f64 {
        let readback_bw = if unified_memory { 0.0 } else { host_readback_bw };
        self.launches_saved as f64 * dispatch_ns
            + self.sync_points_saved as f64 * roundtrip_ns
            + self.device_traffic_bytes_saved as f64 / memory_bw.max(1.0)
            + self.host_readback_bytes_saved as f64 / readback_bw.max(1.0)
    }

    /// Returns true if the score is at least `min_gain_ns`.
    pub fn should_fuse(
        &self,
        dispatch_ns: f64,
        roundtrip_ns: f64,
        memory_bw: f64,
        host_readback_bw: f64,
        unified_memory: bool,
        min_gain_ns: f64,
    ) -> bool {
        self.score_ns(dispatch_ns, roundtrip_ns, memory_bw, host_readback_bw, unified_memory) >= min_gain_ns
    }
}

/// Returns what `after` saves against `before`.
pub fn fusion_benefit(before: &GraphIoProfile, after: &GraphIoProfile) -> FusionBenefit {
    FusionBenefit {
        launches_saved: before.kernel_launches as isize - after.kernel_launches as isize,
        sync_points_saved: before.sync_points as isize - after.sync_points as isize,
        host_readback_bytes_saved: before.host_output_bytes as i64 - after.host_output_bytes as i64,
        device_traffic_bytes_saved: before.device_traffic_bytes as i64 - after.device_traffic_bytes as i64,
    }
}

/// A gate that decides between two plans by facts about a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoFusionGate {
    /// Nanoseconds of the host for a launch.
    pub dispatch_ns: f64,
    /// Nanoseconds from the start of a wait for the device to its end.
    pub roundtrip_ns: f64,
    /// Bytes per nanosecond that kernels read and write.
    pub memory_bw: f64,
    /// Bytes per nanosecond that the host reads from the device.
    pub host_readback_bw: f64,
    /// True if the host reads the device's memory in place.
    pub unified_memory: bool,
    /// Nanoseconds that a node on the host costs beside its wait.
    pub host_thunk_penalty_ns: f64,
    /// Smallest gain in nanoseconds for which the gate fuses.
    pub min_gain_ns: f64,
}

impl IoFusionGate {
    /// Returns the score of a benefit by the proposal's formula, with the penalty for each node that fusion
    /// moves to the host.
    pub fn score_ns(&self, benefit: &FusionBenefit) -> f64 {
        let score = benefit.score_ns(
            self.dispatch_ns,
            self.roundtrip_ns,
            self.memory_bw,
            self.host_readback_bw,
            self.unified_memory,
        );
        if benefit.sync_points_saved < 0 {
            score - -benefit.sync_points_saved as f64 * self.host_thunk_penalty_ns
        } else {
            score
        }
    }

    /// Returns true if the score of `after` against `before` is at least `min_gain_ns`.
    pub fn should_fuse(&self, before: &GraphIoProfile, after: &GraphIoProfile) -> bool {
        self.score_ns(&fusion_benefit(before, after)) >= self.min_gain_ns
    }

    /// Returns the nanoseconds of a profile. The sum has its launches, its nodes on the host with their waits,
    /// its bytes on the device, and the bytes that the host reads unless memory is unified.
    pub fn cost_ns(&self, profile: &GraphIoProfile) -> f64 {
        let bytes = |bytes: u64, bandwidth: f64| if bytes == 0 { 0.0 } else { bytes as f64 / bandwidth };
        let readback = match self.unified_memory {
            true => 0.0,
            false => bytes(profile.host_output_bytes, self.host_readback_bw),
        };
        profile.kernel_launches as f64 * self.dispatch_ns
            + profile.sync_points as f64 * (self.roundtrip_ns + self.host_thunk_penalty_ns)
            + bytes(profile.device_traffic_bytes, self.memory_bw)
            + readback
    }

    /// Measures a device, once in the life of the process. The penalty and the smallest gain are 0.
    ///
    /// # Errors
    /// The errors of the kernels that it runs.
    pub fn of(device: &Device) -> Result<IoFusionGate> {
        static MEASURED: Mutex<Option<HashMap<Device, IoFusionGate>>> = Mutex::new(None);
        let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = measured.get_or_insert_default();
        if let Some(&known) = measured.get(device) {
            return Ok(known);
        }
        let gate = measure(device)?;
        measured.insert(device.clone(), gate);
        Ok(gate)
    }
}

/// The decision of a gate between the fused and the unfused plan of a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// True if the fused plan runs.
    pub fused: bool,
    /// Profile of one kernel per operation.
    pub before: GraphIoProfile,
    /// Profile of the fused plan.
    pub after: GraphIoProfile,
    /// Nanoseconds of the unfused plan.
    pub before_ns: f64,
    /// Nanoseconds of the fused plan.
    pub after_ns: f64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, gain) =
            (if self.fused { "fused" } else { "not fused" }, self.before_ns - self.after_ns);
        write!(
            f,
            "Gate: {verdict}; fusion gains {gain:.0} ns: {:.0} ns with {} launches, {:.0} ns with {} launches fused",
            self.before_ns, self.before.kernel_launches, self.after_ns, self.after.kernel_launches
        )
    }
}

/// Returns the operations of a graph that run on the host: none, since every node has kernels on every device.
pub fn host_sync_op_kinds() -> &'static [&'static str] {
    &[]
}

/// Returns the profile of a graph with one kernel per operation, for these extents. Parameters and casts between
/// stored and computed types count nothing. The host reads all outputs.
///
/// # Errors
/// `Error::Graph` for a graph without outputs; `Error::UnknownDim` for an extent of no dim;
/// `Error::MissingInput` for a dim without an extent.
pub fn profile_graph_io(graph: &Graph, extents: &[(&str, usize)]) -> Result<GraphIoProfile> {
    let names = graph.output_names();
    let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
    profile_graph_io_outputs(graph, &outputs, extents)
}

/// Returns the profile of `profile_graph_io` if the host reads these outputs only.
///
/// # Errors
/// The errors of `profile_graph_io`; `Error::UnknownOutput` for a name that the graph does not have.
pub fn profile_graph_io_outputs(
    graph: &Graph,
    outputs: &[&str],
    extents: &[(&str, usize)],
) -> Result<GraphIoProfile> {
    let plan = graph.plan(Target::Cpu, &"the CPU")?;
    let report = Report::new(&plan).bind(extents)?;
    let unfused = report.unfused_bytes().ok_or_else(|| unbound(&plan, extents))?;
    Ok(GraphIoProfile {
        kernel_launches: report.ops(),
        sync_points: 0,
        host_output_bytes: output_bytes((&plan, &graph.output_names()), outputs, extents)?,
        device_traffic_bytes: unfused,
    })
}

impl Fused {
    /// Returns the profile of the compiled graph for these extents. The host reads all outputs.
    ///
    /// # Errors
    /// `Error::UnknownDim` for an extent of no dim; `Error::MissingInput` for a dim without an extent.
    pub fn io_profile(&self, extents: &[(&str, usize)]) -> Result<GraphIoProfile> {
        let report = self.report().bind(extents)?.on(self.device())?;
        let (launches, bytes) =
            report.launches().zip(report.bytes()).ok_or_else(|| unbound(&self.plan, extents))?;
        let outputs: Vec<&str> = self.outputs.iter().map(String::as_str).collect();
        Ok(GraphIoProfile {
            kernel_launches: launches,
            sync_points: 0,
            host_output_bytes: output_bytes((&self.plan, &self.outputs), &outputs, extents)?,
            device_traffic_bytes: bytes,
        })
    }
}

impl Graph {
    /// Compiles the graph for a device: fused, or with one kernel per operation. The gate fuses the graph if it
    /// expects to gain from that for calls with these extents. The verdict is in `Fused::verdict` and in the printed report.
    ///
    /// # Errors
    /// The errors of `fuse_for` and `io_profile`.
    pub fn fuse_gated(
        &self,
        device: &Device,
        gate: &IoFusionGate,
        extents: &[(&str, usize)],
    ) -> Result<Fused> {
        let fused = self.fuse_for(device)?;
        let unfused = self.clone().unfused().fuse_for(device)?;
        let (before, after) = (unfused.io_profile(extents)?, fused.io_profile(extents)?);
        let (before_ns, after_ns) = (gate.cost_ns(&before), gate.cost_ns(&after));
        let is_fused = before_ns - after_ns >= gate.min_gain_ns;
        let verdict = Verdict { fused: is_fused, before, after, before_ns, after_ns };
        let mut chosen = if is_fused { fused } else { unfused };
        chosen.verdict = Some(verdict);
        Ok(chosen)
    }
}

/// Returns the bytes of some outputs.
fn output_bytes(
    (plan, names): (&Plan, &[String]),
    outputs: &[&str],
    extents: &[(&str, usize)],
) -> Result<u64> {
    let value = |name: &str| extents.iter().find(|(dim, _)| *dim == name).map(|(_, extent)| *extent as i64);
    let symbols: Option<Vec<i64>> = plan.symbols.iter().map(|name| value(name)).collect();
    let symbols = symbols.ok_or_else(|| unbound(plan, extents))?;
    let returned = plan.outputs.iter().filter(|output| output.dest == Dest::Returned);
    let mut bytes = 0;
    for name in outputs {
        let output = names.iter().zip(returned.clone()).find(|(known, _)| known == name);
        let Some((_, output)) = output else {
            let (graph, known) = (plan.name.to_string(), names.join(", "));
            return Err(Error::UnknownOutput { graph, output: (*name).into(), known });
        };
        let count = output.dims.iter().try_fold(output.dtype.size() as u64, |count, dim| {
            count.checked_mul(u64::try_from(dim.extent.eval(&symbols)?).ok()?)
        });
        bytes += count.unwrap_or(u64::MAX);
    }
    Ok(bytes)
}

/// Returns the error for a dim without an extent.
fn unbound(plan: &Plan, extents: &[(&str, usize)]) -> Error {
    let is_missing = |name: &&str| extents.iter().all(|(dim, _)| dim != name);
    let missing = plan.symbols.iter().map(|name| &**name).find(is_missing).unwrap_or_default();
    let known = plan.symbols.join(", ");
    Error::MissingInput { graph: plan.name.to_string(), input: missing.into(), known }
}

/// Number of elements of the tensors that show the bandwidth of a device.
const LARGE: usize = 1 << 22;
/// Number of measurements, the median of which counts.
const ROUNDS: usize = 9;
/// Number of launches of a measurement.
const LAUNCHES: usize = 50;

fn measure(device: &Device) -> Result<IoFusionGate> {
    let mut graph = Graph::new("measure");
    let x = graph.input::<f32>("x", ["N"])?;
    let y = graph.add("x + 1.0", [("x", x)])?;
    graph.output("y", y)?;
    let fused = graph.fuse_for(device)?;
    let run = |x: &Tensor<f32>| fused.run(&[("x", x)])?.take::<f32>("y");
    let (small, large) = (Tensor::zeros(device, [1])?, Tensor::zeros(device, [LARGE])?);
    let launches = || (0..LAUNCHES).try_for_each(|_| run(&small).map(drop));
    let bytes = (LARGE * size_of::<f32>()) as f64;
    // The first calls compile kernels and allocate memory.
    launches()?;
    let result = run(&large)?;
    result.to_vec()?;
    let dispatch_ns = median(|| timed(launches))? / LAUNCHES as f64;
    let roundtrip_ns = median(|| {
        run(&small)?;
        timed(|| device.synchronize())
    })?;
    let traffic_ns = median(|| device.time(|| run(&large).map(drop)))?;
    let readback_ns = median(|| timed(|| result.to_vec().map(drop)))?;
    Ok(IoFusionGate {
        dispatch_ns,
        roundtrip_ns,
        memory_bw: 2.0 * bytes / (traffic_ns - dispatch_ns).max(1.0),
        host_readback_bw: bytes / readback_ns.max(1.0),
        unified_memory: device.0.target() == Target::Cpu,
        host_thunk_penalty_ns: 0.0,
        min_gain_ns: 0.0,
    })
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Returns the median of some measurements in nanoseconds.
fn median(mut measure: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut times = (0..ROUNDS).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    times.sort();
    Ok(times[ROUNDS / 2].as_nanos() as f64)
}
