//! Boxes and arrows → a layered drawing, after Sugiyama, Tagawa and Toda 1981.
//!
//! The layer of a box is the length of the longest path to the box. The order within a layer follows the mean
//! position of neighbours. Positions are then as near to these means as widths allow.
//!
//! Invariant: arrows point downwards, no two boxes overlap, and no arrow crosses a box. An arrow that passes
//! a layer has a slot of its own in the layer.

/// Distances between the boxes of a layer, and between layers.
const BOX_SPACING: f64 = 28.0;
const LAYER_SPACING: f64 = 56.0;
/// Width of the slot of an arrow that passes a layer.
const SLOT: f64 = 10.0;
/// Number of passes that improve the positions.
const SWEEPS: usize = 12;

/// Point, with its distances from the left and from the top.
pub(super) type Point = (f64, f64);

/// Positions of all boxes and arrows.
pub(super) struct Drawing {
    /// Top left corner of each box.
    pub(super) boxes: Vec<Point>,
    /// Points of each arrow, downwards, two in each layer. An arrow is straight within a layer and curved
    /// between layers.
    pub(super) arrows: Vec<Vec<Point>>,
    /// Size of the whole drawing.
    pub(super) size: Point,
}

/// Box, or slot of an arrow in a layer that the arrow passes.
struct Node {
    width: f64,
    height: f64,
    layer: usize,
    /// Centre of the node.
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Lays out boxes of these widths and heights, with arrows between boxes by number. The arrows form no cycle.
pub(super) fn layered(sizes: &[Point], arrows: &[(usize, usize)]) -> Drawing {
    let layers = layers_of(sizes.len(), arrows);
    let node = |(&(width, height), &layer): (&Point, &usize)| Node {
        width,
        height,
        layer,
        x: 0.0,
        above: vec![],
        below: vec![],
    };
    let mut nodes: Vec<Node> = sizes.iter().zip(&layers).map(node).collect();
    let paths: Vec<Vec<usize>> = arrows.iter().map(|&arrow| path(&mut nodes, arrow)).collect();
    let mut layers: Vec<Vec<usize>> =
        vec![vec![]; nodes.iter().map(|node| node.layer + 1).max().unwrap_or(0)];
    nodes.iter().enumerate().for_each(|(i, node)| layers[node.layer].push(i));
    layers.iter().for_each(|layer| place(&mut nodes, layer, &vec![0.0; layer.len()]));
    for sweep in 0..SWEEPS {
        improve(&mut nodes, &mut layers, sweep);
    }
    drawing(&nodes, &layers, sizes.len(), &paths)
}

/// Returns the layer of each box: one below its lowest predecessor. A box without predecessors is just above
/// its highest successor.
fn layers_of(count: usize, arrows: &[(usize, usize)]) -> Vec<usize> {
    let mut layers = vec![0; count];
    // A path has fewer arrows than there are boxes.
    for _ in 0..count {
        for &(from, to) in arrows {
            layers[to] = layers[to].max(layers[from] + 1);
        }
    }
    for i in 0..count {
        let first = arrows.iter().filter(|arrow| arrow.0 == i).map(|arrow| layers[arrow.1]).min();
        if let (Some(first), false) = (first, arrows.iter().any(|arrow| arrow.1 == i)) {
            layers[i] = first - 1;
        }
    }
    layers
}

/// Adds the slots of an arrow. Returns the arrow's nodes: both ends, and a slot in each layer between.
fn path(nodes: &mut Vec<Node>, (from, to): (usize, usize)) -> Vec<usize> {
    let mut path = vec![from];
    for layer in nodes[from].layer + 1..nodes[to].layer {
        path.push(nodes.len());
        nodes.push(Node { width: SLOT, height: 0.0, layer, x: 0.0, above: vec![], below: vec![] });
    }
    path.push(to);
    for pair in path.windows(2) {
        nodes[pair[0]].below.push(pair[1]);
        nodes[pair[1]].above.push(pair[0]);
    }
    path
}

/// Visits all layers once, downwards or upwards, and moves each node to the mean position of its neighbours.
fn improve(nodes: &mut [Node], layers: &mut [Vec<usize>], sweep: usize) {
    let count = layers.len();
    for i in 0..count {
        let layer = &mut layers[if sweep.is_multiple_of(2) { i } else { count - 1 - i }];
        let wanted = |&i: &usize| {
            let node = &nodes[i];
            let sides: [&[usize]; 2] = [&node.above, &node.below];
            // The last sweeps use the neighbours on both sides.
            let seen = if sweep + 2 >= SWEEPS { &sides[..] } else { &sides[sweep % 2..=sweep % 2] };
            let near: Vec<f64> = seen.iter().flat_map(|side| *side).map(|&other| nodes[other].x).collect();
            if near.is_empty() { node.x } else { near.iter().sum::<f64>() / near.len() as f64 }
        };
        let mut places: Vec<(usize, f64)> = layer.iter().map(|i| (*i, wanted(i))).collect();
        // The last sweeps keep the order.
        if sweep + 2 < SWEEPS {
            places.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        *layer = places.iter().map(|place| place.0).collect();
        place(nodes, layer, &places.iter().map(|place| place.1).collect::<Vec<_>>());
    }
}

/// Moves the nodes of a layer, in order, as near to the wanted positions as their widths allow. The sum of
/// squared distances is the least: neighbours that would overlap merge into blocks that move as one.
fn place(nodes: &mut [Node], layer: &[usize], wanted: &[f64]) {
    let mut offset = 0.0;
    let mut offsets = Vec::new();
    // Start of each block, the mean of the starts that its nodes want, and number of its nodes.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (i, &node) in layer.iter().enumerate() {
        if i > 0 {
            offset += (nodes[layer[i - 1]].width + nodes[node].width) / 2.0 + BOX_SPACING;
        }
        offsets.push(offset);
        let mut block = (wanted[i] - offset, 1);
        while let Some(&(start, count)) = blocks.last()
            && start > block.0
        {
            blocks.pop();
            let both = count + block.1;
            block = ((start * count as f64 + block.0 * block.1 as f64) / both as f64, both);
        }
        blocks.push(block);
    }
    let starts = blocks.iter().flat_map(|&(start, count)| std::iter::repeat_n(start, count));
    for ((&node, offset), start) in layer.iter().zip(offsets).zip(starts) {
        nodes[node].x = start + offset;
    }
}

fn drawing(nodes: &[Node], layers: &[Vec<usize>], boxes: usize, paths: &[Vec<usize>]) -> Drawing {
    let left = nodes.iter().map(|node| node.x - node.width / 2.0).fold(f64::INFINITY, f64::min);
    let right = nodes.iter().map(|node| node.x + node.width / 2.0).fold(f64::NEG_INFINITY, f64::max);
    let heights = layers.iter().map(|layer| layer.iter().map(|&i| nodes[i].height).fold(0.0, f64::max));
    let heights: Vec<f64> = heights.collect();
    let top = |layer: usize| heights[..layer].iter().map(|height| height + LAYER_SPACING).sum::<f64>();
    let above = |node: &Node| top(node.layer) + (heights[node.layer] - node.height) / 2.0;
    let arrow = |path: &Vec<usize>| {
        let mut points = Vec::new();
        for (i, &number) in path.iter().enumerate() {
            let node = &nodes[number];
            let (layer_top, layer_bottom) = (top(node.layer), top(node.layer) + heights[node.layer]);
            let (x, from, to) = if number >= boxes {
                (node.x, layer_top, layer_bottom)
            } else if i == 0 {
                (port(nodes, number, &node.below, path[1]), above(node) + node.height, layer_bottom)
            } else {
                (port(nodes, number, &node.above, path[i - 1]), layer_top, above(node))
            };
            points.extend([(x - left, from), (x - left, to)]);
        }
        points
    };
    let corner = |node: &Node| (node.x - node.width / 2.0 - left, above(node));
    let bottom = (top(layers.len()) - LAYER_SPACING).max(0.0);
    Drawing {
        boxes: nodes[..boxes].iter().map(corner).collect(),
        arrows: paths.iter().map(arrow).collect(),
        size: ((right - left).max(0.0), bottom),
    }
}

/// Returns the position at which an arrow to or from a neighbour meets a box. Arrows are in the order of the
/// neighbours.
fn port(nodes: &[Node], number: usize, neighbours: &[usize], neighbour: usize) -> f64 {
    let node = &nodes[number];
    let before = neighbours.iter().filter(|&&other| nodes[other].x < nodes[neighbour].x).count();
    node.x - node.width / 2.0 + node.width * (before + 1) as f64 / (neighbours.len() + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sizes: &[Point], arrows: &[(usize, usize)]) -> Drawing {
        let drawing = layered(sizes, arrows);
        let rect = |i: usize| {
            let ((x, y), (width, height)) = (drawing.boxes[i], sizes[i]);
            (x, y, x + width, y + height)
        };
        for i in 0..sizes.len() {
            let (left, top, right, bottom) = rect(i);
            assert!(left >= -1e-9 && right <= drawing.size.0 + 1e-9, "box {i} is within the width");
            assert!(top >= -1e-9 && bottom <= drawing.size.1 + 1e-9, "box {i} is within the height");
            for j in 0..i {
                let (l, t, r, b) = rect(j);
                assert!(right <= l || r <= left || bottom <= t || b <= top, "boxes {i} and {j} overlap");
            }
        }
        for (points, &(from, to)) in drawing.arrows.iter().zip(arrows) {
            let (start, end) = (points[0], points[points.len() - 1]);
            assert_eq!(
                (start.1, end.1),
                (rect(from).3, rect(to).1),
                "from the bottom of one to the top of the other"
            );
            assert!(start.0 > rect(from).0 && start.0 < rect(from).2, "an arrow begins at its box");
            assert!(end.0 > rect(to).0 && end.0 < rect(to).2, "an arrow ends at its box");
            // Straight parts of an arrow are within layers, and must meet no other box.
            for pair in points.chunks_exact(2) {
                assert_eq!(pair[0].0, pair[1].0);
                for i in (0..sizes.len()).filter(|i| ![from, to].contains(i)) {
                    let (l, t, r, b) = rect(i);
                    let apart = pair[0].0 < l || pair[0].0 > r || pair[1].1 < t || pair[0].1 > b;
                    assert!(apart, "the arrow from {from} to {to} runs through box {i}");
                }
            }
        }
        drawing
    }

    #[test]
    fn a_chain_is_a_column() {
        let drawing = check(&[(100.0, 40.0), (60.0, 80.0), (140.0, 20.0)], &[(0, 1), (1, 2)]);
        let centres: Vec<f64> =
            drawing.boxes.iter().zip([100.0, 60.0, 140.0]).map(|(at, width)| at.0 + width / 2.0).collect();
        assert!(centres.iter().all(|x| (x - 70.0).abs() < 1e-6), "{centres:?}");
        assert_eq!(drawing.size, (140.0, 40.0 + 80.0 + 20.0 + 2.0 * LAYER_SPACING));
    }

    #[test]
    fn paths_past_layers_run_beside_the_boxes() {
        // Batch statistics: the second kernel reads the first kernel's operand again.
        let boxes = [(80.0, 50.0), (200.0, 90.0), (120.0, 60.0), (120.0, 60.0), (200.0, 90.0), (80.0, 50.0)];
        let drawing = check(&boxes, &[(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (0, 4), (4, 5)]);
        assert_eq!(drawing.arrows[5].len(), 8, "past two layers");
        check(&[], &[]);
        check(&[(10.0, 10.0)], &[]);
        // A large graph.
        let many = vec![(90.0, 40.0); 24];
        let arrows: Vec<(usize, usize)> =
            (0..24).flat_map(|i| (i + 1..24).step_by(i % 5 + 3).map(move |j| (i, j))).collect();
        check(&many, &arrows);
    }

    #[test]
    fn what_is_read_late_lies_low() {
        let drawing = check(&[(50.0, 20.0); 4], &[(0, 1), (1, 2), (3, 2)]);
        assert_eq!(drawing.boxes[3].1, drawing.boxes[1].1, "one layer above what reads it");
    }
}
