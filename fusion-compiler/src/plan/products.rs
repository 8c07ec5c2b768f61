//! Sums of products of a group → their class in reports, or the reason why they are no contraction.

use super::assemble::value_name;
use crate::fuse::Group;
use crate::fuse::attention::Attention;
use crate::fuse::products::{NoContraction, factors};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AxisId, AxisSet, Graph, NodeId};
use crate::schedule::contraction::{Product, has_ends};

/// Returns the title of a product: `contraction along K: M × N`.
pub(super) fn title(graph: &Graph, product: &Product) -> String {
    let names = |axes: &[AxisId]| {
        let names: Vec<&str> = axes.iter().map(|&axis| &*graph.axis(axis).name).collect();
        names.join(", ")
    };
    let Product { batch, rows, cols, depth, .. } = product;
    let each = if batch.is_empty() { String::new() } else { format!(" for each {}", names(batch)) };
    format!("contraction along {}: {} × {}{each}", names(depth), names(rows), names(cols))
}

/// Returns the title of attention: `attention along S: T × D for each B, H`.
pub(super) fn title_of_attention(graph: &Graph, group: &Group, of: &Attention) -> String {
    let names = |axes: AxisSet| {
        let order = group.order.iter().filter(|axis| axes.contains(**axis));
        order.map(|&axis| &*graph.axis(axis).name).collect::<Vec<_>>().join(", ")
    };
    let each = if of.batch.is_empty() { String::new() } else { format!(" for each {}", names(of.batch)) };
    let along = &graph.axis(of.along).name;
    format!("attention along {along}: {} × {}{each}", names(of.rows), names(of.cols))
}

/// Returns the title and the operations of both products of attention for all keys, and the keys that are skipped.
fn class_of_attention(graph: &Graph, group: &Group, of: &Attention) -> String {
    let work =
        [(of.products, of.queries, of.keys), (of.sum, of.weights, of.values)].map(|(sum, left, right)| {
            let axes = graph.node(left).axes.union(graph.node(right).axes).union(graph.reduced_axes(sum));
            DimExpr::constant(2) * DimExpr::product(axes.iter().map(|axis| &graph.axis(axis).extent))
        });
    let [scores, sums] = work;
    let seen = match has_ends(graph, of) {
        [false, false] => "",
        [true, false] => ", less the keys before the first one that a row sees",
        [false, true] => ", less the keys after the last one that a row sees",
        [true, true] => ", less the keys outside of the interval that a row sees",
    };
    let title = title_of_attention(graph, group, of);
    format!("{title}, {} FLOP{seen}", (scores + sums).display(&graph.symbols))
}

/// Returns the class of each sum of products whose factors have different axes.
pub(super) fn classes(graph: &Graph, group: &Group) -> Vec<String> {
    if let Some(attention) = Attention::of(graph, group) {
        return vec![class_of_attention(graph, group, &attention)];
    }
    let class = |&sum: &NodeId| {
        let (along, of) = factors(graph, sum)?;
        let [x, w] = of.map(|factor| graph.node(factor).axes);
        let names: Vec<&str> = along.iter().map(|axis| &*graph.axis(axis).name).collect();
        let class = match Product::at(graph, group, sum) {
            Ok(product) => {
                let extents = product.axes().map(|axis| &graph.axis(axis).extent);
                let work = DimExpr::constant(2) * DimExpr::product(extents);
                format!("{}, {} FLOP", title(graph, &product), work.display(&graph.symbols))
            }
            Err(refused) => {
                format!("sum along {} is a reduction: {}", names.join(", "), reason(graph, &refused, of))
            }
        };
        (x != w).then_some(class)
    };
    group.nodes.iter().filter_map(class).collect()
}

/// Describes why a sum of the products of two factors is no contraction.
fn reason(graph: &Graph, refused: &NoContraction, factors: [NodeId; 2]) -> String {
    let names = factors.map(|factor| value_name(graph, factor));
    let name = |factor: NodeId| match factors.iter().position(|&other| other == factor) {
        Some(i) if names[0] != names[1] => format!("`{}`", names[i]),
        Some(0) => "the left factor".into(),
        Some(_) | None => "the right factor".into(),
    };
    match refused {
        NoContraction::Strict => "`strict` rounds each product".into(),
        NoContraction::Used => "another kernel stores its products".into(),
        NoContraction::Narrow(dtype) => {
            format!("its products become `{dtype}`, and `matmul` widens the factors first")
        }
        NoContraction::Unrolled => "it has so few terms that a thread adds them by itself".into(),
        NoContraction::NoDim([of, other]) => format!("{} has no dim that {} lacks", name(*of), name(*other)),
        NoContraction::Few(of) => format!("{} has few elements along its own dims", name(*of)),
        NoContraction::Lacks(of, axis) => format!("{} lacks `{}`", name(*of), graph.axis(*axis).name),
        NoContraction::Several => "its kernel reduces other values, too".into(),
        NoContraction::Elements => "its kernel computes values that have other dims".into(),
    }
}
