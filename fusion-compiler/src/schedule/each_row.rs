//! What is done for each row of a group: the runs along it, what is stored of its elements and of itself.

use super::Work;
use super::body::{Body, Level, Place};
use super::coalesce_transposed::SECTOR;
use super::one_hot_gather::one_hot_gathers;
use super::passes::{Pass, PassCount, passes};
use super::position::CoordinateRange;
use super::row_loop::{INDEX, RowLoop, ThreadMapping};
use super::row_space::RowSpace;
use super::space::product;
use crate::fuse::Store;
use crate::ir::dim::DimExpr;
use crate::ir::graph::Access;
use crate::ir::kernel::{BufferId, Lanes, LoopKind, Scope, Stmt, Value};
use crate::ir::op::Op;

/// The part of a row, whose number is one of these coordinates, or of the block of a cluster that has one.
fn range(space: &RowSpace, part: &DimExpr, body: &mut Body<'_>, coordinates: &[Value]) -> CoordinateRange {
    let counted = || space.part_dim.map(|dim| coordinates[dim]);
    let number = body.rank.or_else(counted).unwrap_or_else(|| unreachable!("parts of rows have numbers"));
    if !space.is_line() {
        return body.range(number, part, &space.cols()[0].extent);
    }
    let range = body.range(number, part, &product(space.line()));
    body.stage_from(range.start);
    range
}

/// Whether the threads of a team read, of a row, what the first of them writes in its place.
fn reads_own(work: &Work<'_>) -> bool {
    let of_rows = |(store, buffer): (&Store, &BufferId)| {
        let is_read = work.operands[usize::from(buffer.0)].access == Access::ReadWrite;
        !work.group.is_of_elements(store) && is_read
    };
    work.group.stores.iter().zip(&work.stores).any(of_rows)
}

/// The rows that are dealt out.
pub(super) struct GridMapping {
    pub(super) kind: LoopKind,
    pub(super) start: Value,
    pub(super) end: Value,
    /// How many at a time …
    pub(super) rows_at_once: Value,
    /// … and which of them this thread works on, if they are several.
    pub(super) column: Option<Value>,
}

/// All rows, one after another, or so many at a time.
pub(super) fn rows(
    work: &Work<'_>,
    space: &RowSpace,
    body: &mut Body<'_>,
    (along, how_many): (&ThreadMapping, PassCount),
    GridMapping { kind, start, end, rows_at_once, column }: GridMapping,
) {
    combine_parts(work, space, body, along);
    let var = body.top().declare(INDEX);
    let (mut row, mut is_there) = (var, None);
    if let Some(column) = column {
        let one = body.top().index(1);
        let mut b = body.item();
        let (own, last) = (b.apply(Op::Add, &[var, column]), b.apply(Op::Sub, &[end, one]));
        // Whoever has none works on the last again, so that all come to where values are combined.
        row = b.apply(Op::Min, &[own, last]);
        is_there = Some(b.apply(Op::Lt, &[own, end]));
    }
    let of_row = body.decode_dims(row, space.rows);
    let inside = of_one_row(work, space, body, (along, how_many), (row, is_there, &of_row));
    body.push(Stmt::Loop { var, kind, start, end, step: rows_at_once, carried: vec![], body: inside });
}

/// All that is done for the row with these coordinates; nothing is written where it is not there.
fn of_one_row(
    work: &Work<'_>,
    space: &RowSpace,
    body: &mut Body<'_>,
    (along, how_many): (&ThreadMapping, PassCount),
    (row, is_there, of_row): (Value, Option<Value>, &[Value]),
) -> Vec<Stmt> {
    let range = space.part.as_ref().map(|part| range(space, part, body, of_row));
    let nowhere: Vec<Value> = space.partials().iter().map(|_| body.top().index(0)).collect();
    let coordinates = [of_row, &nowhere].concat();
    let of_line = range.as_ref().filter(|_| space.is_line());
    let along_part = along.within(body, of_line);
    let of_vectors = body.vectors.map(|(buffer, lanes)| {
        let range = match of_line {
            Some(range) => (range.start, range.end),
            None => (body.top().index(0), body.extent(&product(space.line()))),
        };
        let coordinates = [coordinates.as_slice(), &[range.0]].concat();
        let first = Place { element: row, coordinates, lanes: Lanes::ONE, apart: false, in_row: None };
        let position = body.position(buffer, Level::Item, (&vec![], Lanes::ONE), &first).index;
        let sector = SECTOR as usize / work.operands[usize::from(buffer.0)].dtype.size();
        let in_vector = body.top().index(i64::from(lanes) - 1);
        let lane = body.item().apply(Op::And, &[position, in_vector]);
        body.stage_ahead(lane);
        (along.by_vectors(body, (lanes, lanes), position, range), position, range, sector as u8)
    });
    let (mut passes, no_pass) = (passes(work, how_many), Pass::default());
    let pass_along = |along, pass| {
        let (dims, line, range) = (space.cols(), space.line, range.as_ref());
        RowLoop { work, dims, line, along, row, range, coordinates: &coordinates, pass }
    };
    let row_loop = |pass| pass_along(&along_part, pass);
    if let Some((along, ..)) = &of_vectors {
        let fill = pass_along(along, &no_pass).fill(body);
        // Others combine what a thread has read, it stores what others have made, and of the next row, which may start elsewhere in a
        // vector, it fills what others have stored.
        let wait = || [Stmt::Barrier(Scope::Team)];
        body.item().body.extend(wait().into_iter().chain(fill).chain(wait()));
    }
    let gathers = one_hot_gathers(work, body, along);
    for &gather in &gathers {
        let value = row_loop(&no_pass).static_index(body, gather);
        body.set_of_row(gather.sum, value);
        passes.iter_mut().for_each(|pass| pass.alone.retain(|&id| id != gather.sum));
    }
    for pass in passes.iter().filter(|pass| **pass != no_pass) {
        let whole = row_loop(pass).combine(body);
        pass.made().into_iter().zip(whole).for_each(|(id, value)| body.set_of_row(id, value));
    }
    let mut stores = work.group.stores.iter().zip(&work.stores);
    if stores.any(|(store, buffer)| work.group.is_of_elements(store) && !body.is_written(store.node, *buffer))
    {
        let along_stored = of_vectors.as_ref().map(|(by_vectors, position, range, unit)| {
            // Of what starts elsewhere in a vector, the elements next to each other are those of threads next to each other, or a warp
            // would read four times what it needs; but for one that has a row to itself, that is more to do.
            let is_apart = work.has_others_along() && !along.is_of_warp();
            if is_apart { along.by_vectors(body, (1, *unit), *position, *range) } else { *by_vectors }
        });
        let stores = pass_along(along_stored.as_ref().unwrap_or(&along_part), &no_pass).store(body);
        if along_stored.is_some() {
            body.item().body.push(Stmt::Barrier(Scope::Team));
        }
        match is_there {
            Some(cond) => {
                // Who has no row has read that of others.
                if work.operands.iter().any(|operand| operand.access == Access::ReadWrite) {
                    body.item().body.push(Stmt::Barrier(Scope::Team));
                }
                body.item().body.push(Stmt::If { cond, body: stores });
            }
            None => body.item().body.extend(stores),
        }
    }
    let place = Place {
        element: row,
        coordinates: coordinates.clone(),
        lanes: Lanes::ONE,
        apart: false,
        in_row: None,
    };
    store_of_row(work, body, (&place, is_there), along);
    body.take().0
}

/// Stores what a row has for itself, and what the first of them tells of all; of a team its first thread does.
fn store_of_row(
    work: &Work<'_>,
    body: &mut Body<'_>,
    (place, is_there): (&Place, Option<Value>),
    along: &ThreadMapping,
) {
    let group = work.group;
    let own = group.stores.iter().zip(&work.stores).filter(|(store, _)| !group.is_of_elements(store));
    let (of_none, of_row): (Vec<_>, Vec<_>) = own.partition(|(store, _)| group.is_of_none(store));
    let mut stores = |all: Vec<(&Store, &BufferId)>| -> Vec<Stmt> {
        all.into_iter().map(|(store, &buffer)| body.store(buffer, store.node, place)).collect()
    };
    let (of_row, of_none) = (stores(of_row), stores(of_none));
    if of_row.is_empty() && of_none.is_empty() {
        return;
    }
    if matches!(along, ThreadMapping::Team { .. }) && reads_own(work) {
        match body.rank {
            Some(_) => body.item().body.push(Stmt::Barrier(Scope::Cluster)),
            None => body.item().body.push(Stmt::Barrier(Scope::Team)),
        }
    }
    let is_first = |body: &mut Body<'_>, number: Value| {
        let zero = body.top().index(0);
        body.item().apply(Op::Eq, &[number, zero])
    };
    let first_of_team = match along {
        ThreadMapping::Team { thread, .. } => Some(is_first(body, *thread)),
        ThreadMapping::Vector => None,
    };
    let first_of_cluster = body.rank.map(|rank| is_first(body, rank));
    let tells: Vec<Value> = first_of_team.into_iter().chain(first_of_cluster).chain(is_there).collect();
    let all = [(of_row, false), (of_none, true)];
    for (stores, of_first) in all.into_iter().filter(|(stores, _)| !stores.is_empty()) {
        let first = of_first.then(|| is_first(body, place.element));
        let mut b = body.item();
        match tells.iter().copied().chain(first).reduce(|all, one| b.apply(Op::And, &[all, one])) {
            Some(cond) => b.body.push(Stmt::If { cond, body: stores }),
            None => b.body.extend(stores),
        }
    }
}

/// Combines what parts gave, once for each thread, before there is a row.
fn combine_parts(work: &Work<'_>, space: &RowSpace, body: &mut Body<'_>, along: &ThreadMapping) {
    let pass = &Pass { alone: work.of_parts(), ..Pass::default() };
    if pass.alone.is_empty() {
        return;
    }
    let (dims, line, along, range) = (space.partials(), space.partials, &along.by_one(body), None);
    let row = body.top().index(0);
    let coordinates = &vec![row; space.rows];
    body.run_along(space.rows + space.partials - 1);
    let all = RowLoop { work, dims, line, along, row, range, coordinates, pass }.combine(body);
    let (stmts, _) = body.take();
    stmts.into_iter().for_each(|stmt| body.push(stmt));
    pass.made().into_iter().zip(all).for_each(|(id, value)| body.set_of_all(id, value));
    body.run_along(space.dims.len() - 1);
}
