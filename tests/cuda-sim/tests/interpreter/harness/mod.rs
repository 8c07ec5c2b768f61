//! Runs hand-written kernels, and checks with NVIDIA's assembler that they are valid PTX, if `FUSION_PTXAS`
//! names it.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sim::exec::{self, Counters, Fault, FaultKind, Launch};
use cuda_sim::memory::Memory;
use cuda_sim::ptx;

/// A kernel's argument.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    /// A buffer in global memory, which is returned after the launch.
    Buffer(Vec<u8>),
    Word(u32),
}

/// Creates a buffer of words.
pub(crate) fn words(words: &[u32]) -> Arg {
    Arg::Buffer(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// Creates a buffer of floats.
pub(crate) fn floats(floats: &[f32]) -> Arg {
    Arg::Buffer(floats.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// Returns the words of a buffer.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// Numbers of blocks and threads, and bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic: u32,
}

/// Returns the configuration of one block of `count` threads.
pub(crate) fn threads(count: u32) -> LaunchConfig {
    LaunchConfig { grid: [1; 3], block: [count, 1, 1], dynamic: 0 }
}

/// Returns the configuration of `grid` blocks of `block` threads.
pub(crate) fn blocks(grid: u32, block: u32) -> LaunchConfig {
    LaunchConfig { grid: [grid, 1, 1], block: [block, 1, 1], dynamic: 0 }
}

/// The outcome of a launch: its counters and all buffers, or a fault.
pub(crate) type Outcome = Result<(Counters, Vec<Vec<u8>>), Fault>;

/// Runs the first kernel of a text.
pub(crate) fn launch(text: &str, config: LaunchConfig, args: &[Arg]) -> Outcome {
    launch_limited(text, config, args, exec::LIMIT)
}

/// Runs the first kernel of a text with a limit on instructions.
pub(crate) fn launch_limited(text: &str, config: LaunchConfig, args: &[Arg], limit: u64) -> Outcome {
    assemble(text);
    run(text, config, args, limit)
}

/// Runs the first kernel of a text that the assembler has read before.
pub(crate) fn run(text: &str, config: LaunchConfig, args: &[Arg], limit: u64) -> Outcome {
    let module = ptx::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (kernel, memory) = (&module.kernels[0], Memory::new(1 << 32));
    let place = |bytes: &[u8], align: u64| {
        let address = memory.allocate(bytes.len() as u64).expect("there is room");
        assert_eq!(address % align.max(1), 0);
        let (block, _) = memory.find(address, bytes.len() as u64).expect("just allocated");
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: the byte is within the block, which nothing else uses yet.
            unsafe { block.at(i as u64).write(byte) };
        }
        address
    };
    let globals: Vec<u64> = module.globals.iter().map(|global| place(&global.init, global.align)).collect();
    let (mut params, mut buffers) = (vec![0u8; kernel.params_bytes as usize], vec![]);
    assert_eq!(kernel.params.len(), args.len(), "arguments of {}", kernel.name);
    for (param, arg) in kernel.params.iter().zip(args) {
        let bits = match arg {
            Arg::Buffer(bytes) => {
                let address = place(bytes, 256);
                buffers.push((address, bytes.len()));
                address
            }
            Arg::Word(word) => u64::from(*word),
        };
        let (start, len) = (param.offset as usize, param.bytes as usize);
        params[start..start + len].copy_from_slice(&bits.to_le_bytes()[..len]);
    }
    let LaunchConfig { grid, block, dynamic } = config;
    let (cluster, params) = (None, &params[..]);
    let launch = Launch { grid, block, cluster, dynamic_shared: dynamic, params, globals: &globals };
    let counters = exec::run_limited(kernel, &launch, &memory, limit)?;
    let contents = buffers.into_iter().map(|(address, len)| {
        let (block, _) = memory.find(address, len as u64).expect("it lives");
        // SAFETY: the launch is over, and nothing else uses the block.
        (0..len).map(|i| unsafe { block.at(i as u64).read() }).collect()
    });
    Ok((counters, contents.collect()))
}

/// Returns the words of the first buffer after a launch that must succeed.
pub(crate) fn words_of(text: &str, config: LaunchConfig, args: &[Arg]) -> Vec<u32> {
    let (_, buffers) = launch(text, config, args).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    to_words(&buffers[0])
}

/// Returns the fault of a launch that must have one.
pub(crate) fn fault_of(text: &str, config: LaunchConfig, args: &[Arg], kind: FaultKind) -> Fault {
    let fault = launch_limited(text, config, args, 1 << 20).expect_err("a fault");
    assert_eq!(fault.kind, kind, "{fault}");
    fault
}

const HEADER: &str = ".version 8.2\n.target sm_90\n.address_size 64\n";

/// Returns a module with one kernel `k`.
pub(crate) fn kernel(params: &[&str], body: &str) -> String {
    let params: Vec<String> = params.iter().map(|param| format!(".param .{param}")).collect();
    format!("{HEADER}.visible .entry k({})\n{{\n{body}\nret;\n}}\n", params.join(", "))
}

/// Runs one warp. Each lane has its number in `%r1` and stores `%r0` into its word of the result.
pub(crate) fn warp(body: &str) -> Vec<u32> {
    words_of(&warp_text(body), threads(32), &[words(&[0xdead_beef; 32])])
}

/// Returns the text of a kernel for one warp, as `warp` runs it.
pub(crate) fn warp_text(body: &str) -> String {
    let body = format!(
        ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<20>; .reg .b16 %h<10>; .reg .pred %p<10>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %laneid;
mad.wide.u32 %rd2, %r1, 4, %rd1;
{body}
st.global.u32 [%rd2], %r0;"
    );
    kernel(&["u64 out"], &body)
}

/// A case: up to four operands, and the result.
pub(crate) type Case = ([u64; 4], u64);

/// Registers for instructions under test: a letter, their type, and their bytes.
const BANKS: [(&str, &str, usize); 5] =
    [("%rd", "b64", 8), ("%r", "b32", 4), ("%h", "b16", 2), ("%fd", "f64", 8), ("%f", "f32", 4)];

/// Runs code with a thread for each case. Operands are in registers 1 to 4 of any bank, and the result is in
/// 0. If `result` names the predicate `%p0`, it counts as 0 or 1.
pub(crate) fn check(text: &str, result: &str, cases: &[Case]) {
    let mut body =
        String::from(".reg .b32 %i, %t; .reg .b64 %in, %out, %at; .reg .pred %p<5>; .reg .b32 %truth;\n");
    BANKS.iter().for_each(|(name, ty, _)| body += &format!(".reg .{ty} {name}<9>;\n"));
    body += "ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %i, %tid.x;
mad.wide.u32 %at, %i, 32, %in; mad.wide.u32 %out, %i, 8, %out;\n";
    for (name, ty, _) in BANKS {
        for operand in 1..=4 {
            if mentions(text, &format!("{name}{operand}")) {
                body += &format!("ld.global.{ty} {name}{operand}, [%at+{}];\n", 8 * (operand - 1));
            }
        }
    }
    body += text;
    let bytes = if result == "%p0" {
        body += "\nselp.b32 %truth, 1, 0, %p0; st.global.b32 [%out], %truth;";
        4
    } else {
        let bank = BANKS.iter().find(|(name, ..)| format!("{name}0") == result).expect("a bank");
        body += &format!("\nst.global.{} [%out], {result};", bank.1);
        bank.2
    };
    let text = kernel(&["u64 out", "u64 in"], &body);
    let input =
        cases.iter().flat_map(|(operands, _)| operands.iter().flat_map(|x| x.to_le_bytes())).collect();
    let args = [Arg::Buffer(vec![0; cases.len() * 8]), Arg::Buffer(input)];
    let (_, out) =
        launch(&text, threads(cases.len() as u32), &args).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    for ((operands, wanted), found) in cases.iter().zip(out[0].chunks(8)) {
        let mut bits = [0; 8];
        bits[..bytes].copy_from_slice(&found[..bytes]);
        let found = u64::from_le_bytes(bits);
        assert_eq!(found, *wanted, "{text}\nof {operands:x?}: {found:#x}, not {wanted:#x}");
    }
}

fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| !text[at + name.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns cases of two operands.
pub(crate) fn two(cases: &[(u64, u64, u64)]) -> Vec<Case> {
    cases.iter().map(|&(a, b, wanted)| ([a, b, 0, 0], wanted)).collect()
}

/// Returns cases of three operands.
pub(crate) fn three(cases: &[(u64, u64, u64, u64)]) -> Vec<Case> {
    cases.iter().map(|&(a, b, c, wanted)| ([a, b, c, 0], wanted)).collect()
}

/// Returns cases of one operand.
pub(crate) fn one(cases: &[(u64, u64)]) -> Vec<Case> {
    cases.iter().map(|&(a, wanted)| ([a, 0, 0, 0], wanted)).collect()
}

/// Returns the bits of an f32.
pub(crate) fn s(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// Returns the bits of an f64.
pub(crate) fn d(x: f64) -> u64 {
    x.to_bits()
}

/// Asserts that the assembler accepts a text.
pub(crate) fn assemble(text: &str) {
    let target = text.lines().find_map(|line| line.strip_prefix(".target ")).expect("a text has a target");
    if let Some((accepted, log)) = assembled(text, target) {
        assert!(accepted, "{log}\n{text}");
    }
}

/// Returns the assembler's verdict on a text for a target, and its log. None if there is no assembler, which
/// must not be so where one is required. The build folder keeps the answers, so that each is computed once.
pub(crate) fn assembled(text: &str, target: &str) -> Option<(bool, String)> {
    let Some(ptxas) = std::env::var_os("FUSION_PTXAS") else {
        assert_ne!(
            std::env::var("FUSION_REQUIRE_PTXAS").as_deref(),
            Ok("1"),
            "FUSION_PTXAS names no program"
        );
        return None;
    };
    static VERSION: OnceLock<Vec<u8>> = OnceLock::new();
    let asked = || Command::new(&ptxas).arg("--version").output().expect("it starts").stdout;
    // The hash is the same in every run.
    let mut hasher = DefaultHasher::new();
    (VERSION.get_or_init(asked), text, target).hash(&mut hasher);
    let answers = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answers");
    let kept = answers.join(format!("{:016x}", hasher.finish()));
    let answer = std::fs::read_to_string(&kept).unwrap_or_else(|_| {
        let answer = ask(&ptxas, text, target);
        // The file is written under another name first, because a concurrent reader could see a part of it.
        let written = temporary("answer", &answer);
        std::fs::create_dir_all(answers).expect("the folder can be written");
        std::fs::rename(written, kept).expect("the folder can be written");
        answer
    });
    let (word, log) = answer.split_once('\n').expect("a word, then the log");
    Some((word == ACCEPTED, log.to_owned()))
}

const ACCEPTED: &str = "accepted";

/// Runs the assembler on a text and returns a word for its verdict, then its log.
fn ask(ptxas: &OsStr, text: &str, target: &str) -> String {
    let path = temporary("ptx", text);
    // Targets older than the assembler supports are assembled for the oldest one that it does.
    let digits = target.trim_start_matches("sm_");
    let old = digits.len() == 2 && digits < "75";
    let mut command = Command::new(ptxas);
    command.args(["-arch", if old { "sm_75" } else { target }, "-o", "/dev/null"]).arg(&path);
    let output = command.output().expect("it starts");
    std::fs::remove_file(path).expect("it was written");
    let log = [output.stdout, output.stderr].concat();
    let word = if output.status.success() { ACCEPTED } else { "refused" };
    format!("{word}\n{}", String::from_utf8_lossy(&log))
}

/// Writes a text to a new file.
fn temporary(extension: &str, text: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{}-{}.{extension}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path
}
