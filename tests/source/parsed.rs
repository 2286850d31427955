//! Reads the sources of a crate with a parser: the files of the crate, what each file imports, and
//! which types it defines. Code that is only for tests is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::support::settings;

/// Our crates but those of the tests, by their folders.
pub(super) const CRATES: [&str; 10] = [
    "core",
    "process",
    "database",
    "entity",
    "migration",
    "store",
    "sequence",
    "service",
    "client/rust",
    "bench",
];

/// The name of a module and of the modules above it, from the root of its crate.
pub(super) type ModulePath = Vec<String>;

/// One file of a crate.
#[derive(Default)]
pub(super) struct Source {
    /// The path of the file, relative to the root of the repository.
    pub(super) file: PathBuf,
    /// Paths that the file names, from the root of the crate.
    pub(super) names: Vec<ModulePath>,
    /// The same paths as they are written, each import in full.
    pub(super) written: Vec<Vec<String>>,
    /// Names that the file re-exports, each with the path that it stands for.
    pub(super) reexports: BTreeMap<String, ModulePath>,
    pub(super) types: Vec<String>,
}

/// Returns the files of a crate, by module.
pub(super) fn crate_in(folder: &str) -> BTreeMap<ModulePath, Source> {
    let source = settings::repository().join(folder).join("src");
    let mut sources = BTreeMap::new();
    for root in ["lib.rs", "main.rs"] {
        let file = source.join(root);
        if file.exists() {
            read(&file, ModulePath::new(), &mut sources);
        }
    }
    assert!(!sources.is_empty(), "vacuous: nothing in {folder}");
    sources
}

fn read(file: &Path, module: ModulePath, sources: &mut BTreeMap<ModulePath, Source>) {
    let text = std::fs::read_to_string(file).expect("a source can be read");
    let parsed = syn::parse_file(&text).expect("a source can be parsed");
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => file.parent().map(Path::to_owned),
        Some(stem) => file.parent().map(|parent| parent.join(stem)),
    };
    let folder = folder.expect("a file is in a folder");
    for item in &parsed.items {
        if let Item::Mod(child) = item
            && child.content.is_none()
            && !is_for_tests(&child.attrs)
        {
            let name = child.ident.to_string();
            let files = [format!("{name}.rs"), format!("{name}/mod.rs")];
            let mut files = files.iter().map(|file| folder.join(file));
            let file = files.find(|file| file.exists());
            let path = module.iter().cloned().chain([name]).collect();
            read(&file.expect("a module has a file"), path, sources);
        }
    }
    let mut source = source_of(&parsed, &module);
    let below = file.strip_prefix(settings::repository());
    source.file = below.unwrap_or(file).to_owned();
    sources.insert(module, source);
}

/// Returns what a file names and defines, if the file is the module `module`.
pub(super) fn source_of(parsed: &syn::File, module: &[String]) -> Source {
    let mut reader = Reader {
        module: module.to_vec(),
        depth: 0,
        source: Source::default(),
    };
    reader.visit_file(parsed);
    reader.source
}

/// Returns whether an item is compiled only for tests or models.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|one| one.path().is_ident("cfg"));
    let mut conditions = conditions.filter_map(|one| one.meta.require_list().ok());
    conditions.any(|condition| {
        let text = condition.tokens.to_string().replace(' ', "");
        ["test", "loom"]
            .iter()
            .any(|word| text.contains(word) && !text.contains(&format!("not({word}")))
    })
}

struct Reader {
    module: ModulePath,
    /// The number of functions around the item. Types inside a function are known only there.
    depth: usize,
    source: Source,
}

impl Reader {
    /// Returns the path from the root of this crate, or `None` if `super` leads above the root.
    fn absolute(&self, path: &[String]) -> Option<ModulePath> {
        let mut at = match path.first()?.as_str() {
            "crate" => ModulePath::new(),
            "super" | "self" => self.module.clone(),
            // The path begins with a child of this module or with another crate. No file is found
            // for the path of another crate.
            _ => {
                let child = self.module.iter().chain(path).cloned().collect();
                return Some(child);
            }
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    at.pop()?;
                }
                name => at.push(name.to_owned()),
            }
        }
        Some(at)
    }

    fn import(&mut self, tree: &UseTree, before: &[String], is_public: bool) {
        let with = |name: &syn::Ident| -> Vec<String> {
            before.iter().cloned().chain([name.to_string()]).collect()
        };
        let (path, name) = match tree {
            UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), is_public),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, is_public);
                }
                return;
            }
            UseTree::Name(name) if name.ident == "self" => (before.to_vec(), None),
            UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            UseTree::Rename(rename) => (with(&rename.ident), Some(rename.rename.to_string())),
            UseTree::Glob(_) => (before.to_vec(), None),
        };
        self.source.written.push(path.clone());
        let Some(absolute) = self.absolute(&path) else {
            return;
        };
        match name {
            Some(name) if is_public => {
                self.source.reexports.insert(name, absolute);
            }
            Some(_) | None => self.source.names.push(absolute),
        }
    }

    fn define(&mut self, name: &syn::Ident, attributes: &[Attribute]) {
        if self.depth == 0 && !is_for_tests(attributes) {
            self.source.types.push(name.to_string());
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if let Item::Struct(syn::ItemStruct { ident, attrs, .. })
        | Item::Enum(syn::ItemEnum { ident, attrs, .. })
        | Item::Union(syn::ItemUnion { ident, attrs, .. })
        | Item::Trait(syn::ItemTrait { ident, attrs, .. })
        | Item::Type(syn::ItemType { ident, attrs, .. }) = item
        {
            self.define(ident, attrs);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !is_for_tests(&module.attrs) && module.content.is_some() {
            self.module.push(module.ident.to_string());
            visit::visit_item_mod(self, module);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, import: &'a ItemUse) {
        let is_public = !matches!(import.vis, Visibility::Inherited);
        self.import(&import.tree, &[], is_public);
    }

    fn visit_block(&mut self, block: &'a syn::Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments = path.segments.iter();
        let segments: Vec<String> = segments.map(|part| part.ident.to_string()).collect();
        if segments.len() > 1 {
            self.source.written.push(segments.clone());
            if path.leading_colon.is_none()
                && let Some(absolute) = self.absolute(&segments)
            {
                self.source.names.push(absolute);
            }
        }
        visit::visit_path(self, path);
    }
}
