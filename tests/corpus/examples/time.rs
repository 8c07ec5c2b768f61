//! t
use fusion_compiler::check::{Source, front_end};
fn main() {
    for seed in 0..300u64 {
        let f = fusion_corpus::generate::function(seed);
        eprint!("{seed} ");
        let start = std::time::Instant::now();
        let Ok(Source::Items(functions)) = front_end(f.source.parse().unwrap()) else { panic!("{}", f.source) };
        let a = start.elapsed();
        if seed == std::env::args().nth(1).map_or(9999, |x| x.parse().unwrap()) { eprintln!("{}", f.source); }
        let plan = fusion_compiler::compile(functions[0].graph.clone(), &[fusion_compiler::ir::plan::Target::Cpu], &|_| (0, 0));
        let b = start.elapsed();
        if b.as_millis() > 50 { eprintln!("{a:?} {b:?} nodes {}\n{}", functions[0].graph.nodes.len(), f.source); }
        drop(plan);
    }
}
