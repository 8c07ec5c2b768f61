//! Tables of `docs/NUMERICS.md`, which tests write and compare their measurements with.

use std::str::FromStr;
use std::sync::Mutex;

/// The text of the file. Its tables stand between comments with their names, and each function has a row of
/// cells.
pub(super) struct Tables {
    path: String,
    text: String,
}

impl Tables {
    /// Changes the file under a lock, because other tests may change it too.
    pub(super) fn update(change: impl FnOnce(&mut Tables)) {
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let _guard = ONE_BY_ONE.lock();
        let mut tables = Tables::read();
        change(&mut tables);
        std::fs::write(&tables.path, &tables.text).expect("the file can be written");
    }

    pub(super) fn read() -> Tables {
        let path = format!("{}/docs/NUMERICS.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the file is there");
        Tables { path, text }
    }

    /// Returns the range of a table's rows, which begin after its name.
    fn rows(&self, name: &str) -> std::ops::Range<usize> {
        let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let start = self.text.find(&open).expect("the table is there") + open.len();
        start..start + self.text[start..].find(&close).expect("it ends")
    }

    /// Returns the cells of a row without its name, or none if there is no such row.
    pub(super) fn row(&self, table: &str, function: &str) -> Option<Vec<String>> {
        let mut rows = self.text[self.rows(table)].lines().map(cells);
        let row = rows.find(|cells| cells.first().is_some_and(|name| *name == format!("`{function}`")))?;
        Some(row[1..].to_vec())
    }

    pub(super) fn replace(&mut self, table: &str, titles: &[&str], rows: &[(String, Vec<String>)]) {
        let line = |name: &str, cells: &[String]| format!("| {name} | {} |\n", cells.join(" | "));
        let titles: Vec<String> = titles.iter().map(|title| (*title).into()).collect();
        let rule: Vec<String> = titles.iter().map(|_| "---".into()).collect();
        let mut text = line("function", &titles) + &line("---", &rule);
        rows.iter().for_each(|(name, cells)| text += &line(&format!("`{name}`"), cells));
        let place = self.rows(table);
        self.text.replace_range(place, &text);
    }
}

/// Parses the number at the start of a cell.
pub(super) fn number<T: FromStr>(cell: &str) -> T {
    cell.split(' ').next().and_then(|number| number.parse().ok()).expect("a cell starts with a number")
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|').trim_end_matches('|');
    line.split('|').map(|cell| cell.trim().into()).collect()
}
