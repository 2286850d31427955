//! Reads the Markdown that the documents use: headings, fenced blocks, tables, inline code, and
//! links.

use std::path::{Path, PathBuf};

use crate::support::settings;

/// A document of the repository.
pub(crate) struct Document {
    /// The path of the document, relative to the root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A fenced block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fence {
    /// The word after the opening fence.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// The heading above the block.
    pub(crate) section: String,
    /// Whether only blank lines stand between this block and the block before.
    pub(crate) follows_a_fence: bool,
    /// The line of the opening fence, for messages.
    pub(crate) line: usize,
}

/// A table: the cells of its first row, and the cells of the other rows.
pub(crate) struct Table {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Document {
    pub(crate) fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        let text = std::fs::read_to_string(settings::repository().join(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// Reads every document in the root, in `docs`, and in its folders of pages.
    pub(crate) fn all() -> Vec<Self> {
        let root = settings::repository();
        let mut found = Vec::new();
        for folder in ["", "docs", "docs/adr", "docs/clients"] {
            let entries = std::fs::read_dir(root.join(folder)).expect("the folder is there");
            for entry in entries.flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|extension| extension == "md") {
                    let path = path.strip_prefix(&root).expect("it lies below the root");
                    found.push(Self::read(path));
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        found
    }

    pub(crate) fn fences(&self) -> Vec<Fence> {
        let mut fences: Vec<Fence> = Vec::new();
        let mut open: Option<Fence> = None;
        let mut section = String::new();
        let mut only_blank = false;
        for (index, line) in self.text.lines().enumerate() {
            let bare = line.trim();
            match (&mut open, bare.strip_prefix("```")) {
                (None, Some(kind)) => {
                    open = Some(Fence {
                        kind: kind.to_owned(),
                        text: String::new(),
                        section: section.clone(),
                        follows_a_fence: only_blank,
                        line: index + 1,
                    });
                }
                (Some(_), Some(_)) => {
                    fences.extend(open.take());
                    only_blank = true;
                }
                (Some(fence), None) => {
                    fence.text.push_str(line);
                    fence.text.push('\n');
                }
                (None, None) => {
                    if let Some(heading) = heading(line) {
                        heading.clone_into(&mut section);
                    }
                    only_blank &= bare.is_empty();
                }
            }
        }
        assert_eq!(open, None, "a fence of {} is open", self.path.display());
        fences
    }

    /// Returns the lines outside fenced blocks.
    fn prose(&self) -> impl Iterator<Item = &str> {
        let mut inside = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim().starts_with("```");
            inside ^= is_fence;
            !inside && !is_fence
        })
    }

    pub(crate) fn headings(&self) -> Vec<&str> {
        self.prose().filter_map(heading).collect()
    }

    pub(crate) fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let mut inside = false;
        for line in self.prose() {
            let row = line
                .strip_prefix("| ")
                .and_then(|line| line.strip_suffix('|'));
            let cells: Option<Vec<String>> =
                row.map(|row| row.split(" |").map(|cell| cell.trim().to_owned()).collect());
            match (cells, inside) {
                (Some(header), false) => {
                    tables.push(Table {
                        header,
                        rows: Vec::new(),
                    });
                    inside = true;
                }
                (Some(row), true) => tables.last_mut().expect("a table is open").rows.push(row),
                // This is the line below the header.
                (None, _) => inside &= line.starts_with("|--"),
            }
        }
        tables
    }

    /// Returns the tables that begin with these columns.
    fn tables_of(&self, columns: &[&str]) -> Vec<Table> {
        let mut found: Vec<Table> = self.tables();
        found.retain(|table| {
            columns.len() <= table.header.len()
                && columns.iter().zip(&table.header).all(|(a, b)| a == b)
        });
        found
    }

    /// Returns the rows of all tables that begin with these columns.
    pub(crate) fn rows_of_all(&self, columns: &[&str]) -> Vec<Vec<String>> {
        let found = self.tables_of(columns);
        found.into_iter().flat_map(|table| table.rows).collect()
    }

    /// Returns the rows of the only table that begins with these columns.
    pub(crate) fn rows_of(&self, columns: &[&str]) -> Vec<Vec<String>> {
        let mut found = self.tables_of(columns);
        match found.pop() {
            Some(table) if found.is_empty() => table.rows,
            _ => panic!("not one table {columns:?} in {}", self.path.display()),
        }
    }

    /// Returns everything between two backticks outside fenced blocks.
    pub(crate) fn inline_code(&self) -> Vec<&str> {
        self.prose().flat_map(inline_code).collect()
    }

    /// Returns the targets of links.
    pub(crate) fn links(&self) -> Vec<&str> {
        let ends = self.prose().flat_map(|line| line.split("](").skip(1));
        ends.filter_map(|rest| rest.split(')').next()).collect()
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len())
        .then(|| text.strip_prefix(' '))
        .flatten()
}

/// Returns everything between two backticks.
pub(crate) fn inline_code(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        parts.pop();
    }
    parts.into_iter().skip(1).step_by(2).collect()
}

/// Returns the name by which a link refers to a heading.
pub(crate) fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[test]
fn fences_tables_code_and_links_are_found() {
    let text = "# A title\n\nSee [this](there.md#x) and `code`.\n\n```sh\nls `pwd`\n```\n\n\
                ```text\nout\n```\n\n## Next, please\n\n1. Do\n\n   ```sql\n   SELECT 1\n   ```\n\n\
                | A | B |\n|---|---|\n| `x` | |\n| y | z |\n\n\
                | A | C |\n|---|---|\n| w | |\n";
    let document = Document {
        path: PathBuf::from("a.md"),
        text: text.to_owned(),
    };
    let fences = document.fences();
    let seen: Vec<_> = fences
        .iter()
        .map(|f| (f.kind.as_str(), f.section.as_str(), f.follows_a_fence))
        .collect();
    assert_eq!(
        seen,
        [
            ("sh", "A title", false),
            ("text", "A title", true),
            ("sql", "Next, please", false)
        ]
    );
    assert_eq!(document.headings(), ["A title", "Next, please"]);
    assert_eq!(anchor("Next, please"), "next-please");
    assert_eq!(document.inline_code(), ["code", "x"]);
    assert_eq!(document.links(), ["there.md#x"]);
    assert_eq!(document.rows_of(&["A", "B"]), [["`x`", ""], ["y", "z"]]);
    let all = [["`x`", ""], ["y", "z"], ["w", ""]];
    assert_eq!(document.rows_of_all(&["A"]), all);
}
