use fusion_compiler::ir::{dim::DimExpr, dtype::*, graph::*, ops::Op, plan::*};
fn tensor(g: &mut Graph, name: &str, axes: &[AxisId], access: Access) -> NodeId {
    g.params.push(Param { name: name.into(), dtype: DType::F32, kind: ParamKind::Tensor { axes: axes.to_vec(), access }, span: SpanId(0) });
    g.push(Node { kind: NodeKind::Input(ParamId(g.params.len() as u16 - 1)), args: vec![], dtype: DType::F32, axes: axes.iter().copied().collect(), span: SpanId(0) })
}
#[test]
fn show() {
    let mut g = Graph::new("relu_mul");
    g.symbols = vec!["N".into(), "D".into()];
    let (n, d) = (AxisId(0), AxisId(1));
    g.axes = vec![Axis { name: "N".into(), extent: DimExpr::sym(0) }, Axis { name: "D".into(), extent: DimExpr::sym(1) }];
    let a = tensor(&mut g, "a", &[n, d], Access::Read);
    let b = tensor(&mut g, "b", &[d], Access::Read);
    let c = tensor(&mut g, "c", &[d, n], Access::Read);
    let s = SpanId(0);
    let sum = g.apply(Op::Add, &[a, b], s);
    let zero = g.literal(Const::Float(0.0), DType::F32, s);
    let neg = g.apply(Op::Lt, &[sum, zero], s);
    let relu = g.apply(Op::Select, &[neg, zero, sum], s);
    let out = g.apply(Op::Mul, &[relu, c], s);
    g.outputs.push(Output { node: out, axes: vec![n, d], dest: Dest::Fresh });
    let plan = fusion_compiler::compile(g, &Target::ALL, &|_| (1, 2));
    for p in plan.programs.iter() { for s in p.steps.iter() { for v in s.variants.iter() { println!("{:?}", v.when); for l in v.launches.iter() {
        println!("{:?} {:?} {:?}", l.buffers, l.uniforms, l.space);
        match &l.code { Code::Ptx(t) | Code::Wgsl(t) => println!("{t}"), Code::Cpu(k) => println!("{}", fusion_compiler::emit::rust::rust(&k.fma, "body", fusion_compiler::target::Dialect::Cpu)) }
    }}}}
    println!("{:#?}", plan.summary);
}
