//! Tables of text: columns as wide as their texts, and tables no wider than the page.
//!
//! Invariant: no line ends with a space, and no line breaks within a word. A `TIE` is part of a word.

/// Paragraphs of a cell, each on lines of its own.
pub(super) type Cell = Vec<String>;

/// Space at which no line breaks.
pub(super) const TIE: char = '\u{a0}';
/// Space between columns.
const GAP: &str = "  ";

/// Returns the lines of a table. An empty line separates rows if one has several lines.
pub(super) fn table(header: &[&str], rows: &[Vec<Cell>], width: usize) -> Vec<String> {
    let names: Vec<Cell> = header.iter().map(|name| vec![name.to_string()]).collect();
    let columns = rows.first().map_or(header.len(), Vec::len);
    let all: Vec<&Vec<Cell>> = [&names].into_iter().filter(|names| !names.is_empty()).chain(rows).collect();
    let widths = widths(&all, columns, width);
    let mut lines = Vec::new();
    if !header.is_empty() {
        lines.extend(row(&names, &widths));
        lines.push(widths.iter().map(|&width| "─".repeat(width)).collect::<Vec<_>>().join(GAP));
    }
    let rows: Vec<Vec<String>> = rows.iter().map(|cells| row(cells, &widths)).collect();
    let apart = !header.is_empty() && rows.iter().any(|lines| lines.len() > 1);
    for (i, row) in rows.into_iter().enumerate() {
        if apart && i > 0 {
            lines.push(String::new());
        }
        lines.extend(row);
    }
    lines
}

/// Returns the widths of the columns. Columns shrink until the table fits, but never below their longest
/// words. The column that adds the fewest lines shrinks first; the widest of several such columns does.
fn widths(rows: &[&Vec<Cell>], columns: usize, width: usize) -> Vec<usize> {
    let most = |column: usize, of: &dyn Fn(&str) -> usize| {
        rows.iter().flat_map(|row| &row[column]).map(|text| of(text)).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(|column| most(column, &count)).collect();
    let word = |text: &str| text.split(' ').map(count).max().unwrap_or(0);
    let least: Vec<usize> = (0..columns).map(|column| most(column, &word)).collect();
    let room = width.saturating_sub(GAP.len() * columns.saturating_sub(1));
    let height = |cell: &Cell, width: usize| cell.iter().map(|text| wrap(text, width).len()).sum::<usize>();
    while widths.iter().sum::<usize>() > room {
        let lines = |row: &&Vec<Cell>, narrower: usize| {
            let width = |column: usize| widths[column] - usize::from(column == narrower);
            (0..columns).map(|column| height(&row[column], width(column))).max().unwrap_or(0)
        };
        let gives = (0..columns).filter(|&column| widths[column] > least[column]);
        let cost = |&column: &usize| {
            let lines: usize = rows.iter().map(|row| lines(row, column)).sum();
            (lines, usize::MAX - widths[column])
        };
        let Some(cheapest) = gives.min_by_key(cost) else { break };
        widths[cheapest] -= 1;
    }
    widths
}

/// Returns the lines of a row.
fn row(cells: &[Cell], widths: &[usize]) -> Vec<String> {
    let wrapped = |(cell, &width): (&Cell, &usize)| cell.iter().flat_map(|text| wrap(text, width)).collect();
    let columns: Vec<Vec<String>> = cells.iter().zip(widths).map(wrapped).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let line = |i: usize| {
        let mut line = String::new();
        for (column, &width) in columns.iter().zip(widths) {
            let text = column.get(i).map_or("", String::as_str);
            line.push_str(text);
            line.push_str(&" ".repeat(width.saturating_sub(count(text)) + GAP.len()));
        }
        line.replace(TIE, " ").trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// Breaks a text into lines of whole words, no wider than `width` unless a single word is.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if count(line) + 1 + count(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines
}

/// Number of terminal columns of a text without double-width characters.
pub(super) fn count(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str) -> Cell {
        vec![text.to_owned()]
    }

    #[test]
    fn columns_are_aligned_and_as_narrow_as_the_page() {
        let rows = [
            vec![cell("a"), cell("one two three"), vec!["x".into(), "y".into()]],
            vec![cell("long"), cell("four"), cell("é")],
        ];
        let wide = table(&["group", "ops", "reads"], &rows, 80);
        assert_eq!(
            wide,
            [
                "group  ops            reads",
                "─────  ─────────────  ─────",
                "a      one two three  x",
                "                      y",
                "",
                "long   four           é",
            ]
        );
        let narrow = table(&["group", "ops", "reads"], &rows, 21);
        assert_eq!(narrow[2..5], ["a      one two  x", "       three    y", ""]);
        assert!(wide.iter().chain(&narrow).all(|line| !line.ends_with(' ')));
        assert!(narrow.iter().all(|line| count(line) <= 21));
    }

    #[test]
    fn words_are_never_broken() {
        assert_eq!(wrap("a bb ccc dddd", 4), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("dddddd a", 4), ["dddddd", "a"]);
        assert_eq!(wrap("", 4), [""]);
        let rows = [vec![cell("2:13"), cell("exp")]];
        assert_eq!(table(&[], &rows, 3), ["2:13  exp"]);
        assert_eq!(table(&[], &[vec![cell(&format!("x{TIE}4 y"))]], 3), ["x 4", "y"]);
    }
}
