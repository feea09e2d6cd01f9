//! Rows of `name  value  note` with aligned columns.

use std::fmt::Write;

/// Rows that are aligned with each other.
#[derive(Debug, Default)]
pub struct Rows(Vec<[String; 3]>);

impl Rows {
    /// Adds a row; the note may be empty.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>, note: impl Into<String>) {
        self.0.push([name.into(), value.into(), note.into()]);
    }

    /// Appends the rows: names to the left, values to the right of their column.
    pub fn render(&self, out: &mut String) {
        let width = |column: usize| self.0.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (names, values) = (width(0), width(1));
        for [name, value, note] in &self.0 {
            let line = format!("  {name:<names$}  {value:>values$}  {note}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut rows = Rows::default();
        rows.push("index", "3.0 GiB", "");
        rows.push("names ring", "64 B", "±1");
        let mut out = String::new();
        rows.render(&mut out);
        assert_eq!(out, "  index       3.0 GiB\n  names ring     64 B  ±1\n");
    }
}
