//! Runs hand-written kernels, and has NVIDIA's assembler say that they are PTX where `FUSION_PTXAS` names it.

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
    /// A buffer in global memory, which comes back.
    Buffer(Vec<u8>),
    Word(u32),
}

/// A buffer of words.
pub(crate) fn words(words: &[u32]) -> Arg {
    Arg::Buffer(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// A buffer of floats.
pub(crate) fn floats(floats: &[f32]) -> Arg {
    Arg::Buffer(floats.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// The words of a buffer.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// How many blocks of how many threads, with how much dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic: u32,
}

/// One block of so many threads.
pub(crate) fn threads(count: u32) -> Shape {
    Shape { grid: [1; 3], block: [count, 1, 1], dynamic: 0 }
}

/// So many blocks.
pub(crate) fn blocks(grid: u32, block: u32) -> Shape {
    Shape { grid: [grid, 1, 1], block: [block, 1, 1], dynamic: 0 }
}

/// What a launch leaves: its counters and all buffers.
pub(crate) type Outcome = Result<(Counters, Vec<Vec<u8>>), Fault>;

/// Runs the first kernel of a text.
pub(crate) fn launch(text: &str, shape: Shape, args: &[Arg]) -> Outcome {
    launch_limited(text, shape, args, exec::LIMIT)
}

/// The same with a limit on instructions.
pub(crate) fn launch_limited(text: &str, shape: Shape, args: &[Arg], limit: u64) -> Outcome {
    assemble(text);
    run(text, shape, args, limit)
}

/// The same of a text that the assembler has read before.
pub(crate) fn run(text: &str, shape: Shape, args: &[Arg], limit: u64) -> Outcome {
    let module = ptx::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (kernel, memory) = (&module.kernels[0], Memory::new(1 << 32));
    let place = |bytes: &[u8], align: u64| {
        let address = memory.allocate(bytes.len() as u64).expect("there is room");
        assert_eq!(address % align.max(1), 0);
        let (block, _) = memory.find(address, bytes.len() as u64).expect("just allocated");
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: within the block, which nothing else uses yet.
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
    let Shape { grid, block, dynamic } = shape;
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

/// The words of the first buffer after a launch that must succeed.
pub(crate) fn words_of(text: &str, shape: Shape, args: &[Arg]) -> Vec<u32> {
    let (_, buffers) = launch(text, shape, args).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    to_words(&buffers[0])
}

/// The fault of a launch that must have one.
pub(crate) fn fault_of(text: &str, shape: Shape, args: &[Arg], kind: FaultKind) -> Fault {
    let fault = launch_limited(text, shape, args, 1 << 20).expect_err("a fault");
    assert_eq!(fault.kind, kind, "{fault}");
    fault
}

const HEADER: &str = ".version 8.2\n.target sm_90\n.address_size 64\n";

/// A module with one kernel `k`.
pub(crate) fn kernel(params: &[&str], body: &str) -> String {
    let params: Vec<String> = params.iter().map(|param| format!(".param .{param}")).collect();
    format!("{HEADER}.visible .entry k({})\n{{\n{body}\nret;\n}}\n", params.join(", "))
}

/// One warp whose every lane has its number in `%r1` and puts `%r0` into a word of the result.
pub(crate) fn warp(body: &str) -> Vec<u32> {
    words_of(&warp_text(body), threads(32), &[words(&[0xdead_beef; 32])])
}

/// The text of such a kernel.
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

/// The registers that instructions under test use: a letter, their type, and their bytes.
const BANKS: [(&str, &str, usize); 5] =
    [("%rd", "b64", 8), ("%r", "b32", 4), ("%h", "b16", 2), ("%fd", "f64", 8), ("%f", "f32", 4)];

/// Runs one instruction or more, a thread for each case: operands in registers 1 to 4 of any bank, the result
/// in 0; the predicate `%p0` counts as a result of 0 or 1 where `result` says so.
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

/// Cases of two operands.
pub(crate) fn two(cases: &[(u64, u64, u64)]) -> Vec<Case> {
    cases.iter().map(|&(a, b, wanted)| ([a, b, 0, 0], wanted)).collect()
}

/// Cases of three.
pub(crate) fn three(cases: &[(u64, u64, u64, u64)]) -> Vec<Case> {
    cases.iter().map(|&(a, b, c, wanted)| ([a, b, c, 0], wanted)).collect()
}

/// Cases of one.
pub(crate) fn one(cases: &[(u64, u64)]) -> Vec<Case> {
    cases.iter().map(|&(a, wanted)| ([a, 0, 0, 0], wanted)).collect()
}

/// The bits of an f32.
pub(crate) fn s(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// The bits of an f64.
pub(crate) fn d(x: f64) -> u64 {
    x.to_bits()
}

/// Has the assembler read a text that is right.
pub(crate) fn assemble(text: &str) {
    let target = text.lines().find_map(|line| line.strip_prefix(".target ")).expect("a text has a target");
    if let Some((accepted, log)) = assembled(text, target) {
        assert!(accepted, "{log}\n{text}");
    }
}

/// Whether the assembler takes a text for a target, and what it says; none where there is no assembler, which may only be
/// so where none is asked for. The build folder keeps its answers, so that it is asked once.
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
    // Its numbers are the same in every run.
    let mut hasher = DefaultHasher::new();
    (VERSION.get_or_init(asked), text, target).hash(&mut hasher);
    let answers = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answers");
    let kept = answers.join(format!("{:016x}", hasher.finish()));
    let answer = std::fs::read_to_string(&kept).unwrap_or_else(|_| {
        let answer = ask(&ptxas, text, target);
        // Under another name first: who reads it while it is written would read a part.
        let written = temporary("answer", &answer);
        std::fs::create_dir_all(answers).expect("the folder can be written");
        std::fs::rename(written, kept).expect("the folder can be written");
        answer
    });
    let (word, log) = answer.split_once('\n').expect("a word, then the log");
    Some((word == ACCEPTED, log.to_owned()))
}

const ACCEPTED: &str = "accepted";

/// What the assembler makes of a text: a word, then its log.
fn ask(ptxas: &OsStr, text: &str, target: &str) -> String {
    let path = temporary("ptx", text);
    // The oldest generation that the assembler still knows runs what is for those before it.
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

/// A new file with this text.
fn temporary(extension: &str, text: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{}-{}.{extension}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path
}
