//! Which crates a stage consists of, and which files and outside packages those are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::tokens::{SourceFile, scan};

type Result<T> = std::result::Result<T, String>;

/// The manifests of the workspace and what was scanned so far.
pub struct Workspace {
    root: PathBuf,
    /// `[workspace.dependencies]`.
    dependencies: Table,
    /// Normal dependencies of each workspace crate.
    members: BTreeMap<String, Vec<String>>,
    /// Locked packages by name.
    locked: BTreeMap<String, Vec<Locked>>,
    scanned: BTreeMap<PathBuf, SourceFile>,
    crate_files: BTreeMap<String, Vec<(String, String)>>,
}

struct Locked {
    version: String,
    checksum: String,
    dependencies: Vec<String>,
}

/// A stage's own files.
#[derive(Default)]
pub struct StageFiles {
    /// Path and digest.
    pub files: BTreeMap<String, String>,
    /// Workspace crates that they name.
    pub crates: BTreeSet<String>,
}

impl Workspace {
    pub fn open(root: &Path) -> Result<Self> {
        let manifest = table(&root.join("Cargo.toml"))?;
        let dependencies = sub_table(&manifest, &["workspace", "dependencies"]);
        let mut members = BTreeMap::new();
        for name in sorted(&root.join("crates"))? {
            let path = root.join("crates").join(&name).join("Cargo.toml");
            if !path.is_file() {
                continue;
            }
            let manifest = table(&path)?;
            let mut normal: Vec<_> = sub_table(&manifest, &["dependencies"])
                .keys()
                .cloned()
                .collect();
            for (_, target) in sub_table(&manifest, &["target"]) {
                if let Value::Table(target) = target {
                    normal.extend(sub_table(&target, &["dependencies"]).keys().cloned());
                }
            }
            members.insert(name, normal);
        }
        let mut locked: BTreeMap<String, Vec<Locked>> = BTreeMap::new();
        let lock = table(&root.join("Cargo.lock"))?;
        for package in lock
            .get("package")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |key: &str| {
                package
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let list = package.get("dependencies").and_then(Value::as_array);
            let names = list
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned);
            let (version, checksum, dependencies) =
                (text("version"), text("checksum"), names.collect());
            let entry = Locked {
                version,
                checksum,
                dependencies,
            };
            locked.entry(text("name")).or_default().push(entry);
        }
        let root = root.to_path_buf();
        let (scanned, crate_files) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self {
            root,
            dependencies,
            members,
            locked,
            scanned,
            crate_files,
        })
    }

    /// The workspace crates that `passes` consist of, sorted.
    pub fn closure<'a>(&self, passes: impl Iterator<Item = &'a str>) -> Result<Vec<String>> {
        let mut open: Vec<String> = passes.map(str::to_owned).collect();
        let mut found = BTreeSet::new();
        while let Some(name) = open.pop() {
            let Some(normal) = self.members.get(&name) else {
                return Err(format!("there is no crate {name}"));
            };
            if found.insert(name) {
                let members = normal
                    .iter()
                    .filter(|name| self.members.contains_key(*name));
                open.extend(members.cloned());
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Path and digest of every file that a crate is made from.
    pub fn crate_files(&mut self, name: &str) -> Result<Vec<(String, String)>> {
        if let Some(files) = self.crate_files.get(name) {
            return Ok(files.clone());
        }
        let dir = self.root.join("crates").join(name);
        let mut paths = Vec::new();
        rust_files(&dir.join("src"), &mut paths)?;
        if dir.join("build.rs").is_file() {
            paths.push(dir.join("build.rs"));
        }
        let mut files = BTreeMap::new();
        let mut only_tests = Vec::new();
        for path in &paths {
            for module in &self.scan(path)?.test_modules {
                let folder = module_folder(path);
                only_tests.push(folder.join(format!("{module}.rs")));
                only_tests.push(folder.join(module));
            }
        }
        for path in &paths {
            if !only_tests.iter().any(|test| path.starts_with(test)) {
                self.add_file(path, &mut files)?;
            }
        }
        let files: Vec<_> = files.into_iter().collect();
        self.crate_files.insert(name.to_owned(), files.clone());
        Ok(files)
    }

    /// The stage's own file in the crate at `here`, and the files beside it that it refers to.
    pub fn stage_files(&mut self, here: &Path, stage: &str) -> Result<StageFiles> {
        let src = here.join("src");
        let mut open = vec![stage.to_owned()];
        let mut seen = BTreeSet::new();
        let mut own = StageFiles::default();
        while let Some(module) = open.pop() {
            if !seen.insert(module.clone()) {
                continue;
            }
            let mut paths = vec![src.join(format!("{module}.rs"))];
            paths.retain(|path| path.is_file());
            rust_files(&src.join(&module), &mut paths)?;
            if paths.is_empty() && module != stage {
                // No module: a name that the crate's root defines.
                paths.push(src.join("lib.rs"));
            }
            for path in paths {
                self.add_file(&path, &mut own.files)?;
                let file = self.scan(&path)?;
                open.extend(file.local_names.iter().cloned());
                let crates = file.crate_names.iter().map(|name| name.replace('_', "-"));
                let crates: Vec<_> = crates.collect();
                own.crates
                    .extend(crates.into_iter().filter(|name| self.is_pass(name)));
            }
        }
        Ok(own)
    }

    /// Whether a crate that a stage names is part of its pass: the engine below it is not.
    fn is_pass(&self, name: &str) -> bool {
        const ENGINE: [&str; 3] = ["ipub-engine", "ipub-store", "ipub-stages"];
        self.members.contains_key(name) && !ENGINE.contains(&name)
    }

    /// The outside packages in the closure of `crates`: name and version to checksum, and for
    /// those that the workspace names, the features that it asks for.
    pub fn outside(&self, crates: &[String]) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let mut open: Vec<(String, String)> = Vec::new();
        for name in crates {
            let Some(member) = self.locked.get(name).and_then(|entries| entries.first()) else {
                return Err(format!("Cargo.lock does not know {name}"));
            };
            for dependency in &self.members[name] {
                if self.members.contains_key(dependency) {
                    continue;
                }
                let entry = member
                    .dependencies
                    .iter()
                    .find(|entry| first_word(entry) == dependency);
                let Some(entry) = entry else {
                    return Err(format!("Cargo.lock does not know {dependency} of {name}"));
                };
                let features = self.dependencies.get(dependency).map(Value::to_string);
                let features = features.unwrap_or_default();
                found.insert(format!("{dependency} as asked for"), features);
                open.push(self.resolve(entry)?);
            }
        }
        while let Some((name, version)) = open.pop() {
            let entries = self.locked.get(&name).into_iter().flatten();
            let Some(package) = entries
                .into_iter()
                .find(|package| package.version == version)
            else {
                return Err(format!("Cargo.lock does not know {name} {version}"));
            };
            if found
                .insert(format!("{name} {version}"), package.checksum.clone())
                .is_none()
            {
                for entry in &package.dependencies {
                    open.push(self.resolve(entry)?);
                }
            }
        }
        Ok(found)
    }

    /// Name and version of an entry in a list of dependencies: the version is left out where
    /// there is only one.
    fn resolve(&self, entry: &str) -> Result<(String, String)> {
        let mut words = entry.split(' ');
        let name = words.next().unwrap_or_default();
        let only = || self.locked.get(name).and_then(|packages| packages.first());
        let version = words.next().map(str::to_owned);
        let version = version.or_else(|| only().map(|package| package.version.clone()));
        let version = version.ok_or_else(|| format!("Cargo.lock does not know {name}"))?;
        Ok((name.to_owned(), version))
    }

    /// Folders and files whose change may change a fingerprint.
    pub fn watched(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.root.join("Cargo.toml"), self.root.join("Cargo.lock")];
        for name in self.crate_files.keys() {
            let dir = self.root.join("crates").join(name);
            paths.extend(["src", "Cargo.toml"].map(|part| dir.join(part)));
        }
        for (path, file) in &self.scanned {
            let folder = path.parent().unwrap_or(Path::new(""));
            paths.extend(file.includes.iter().map(|name| folder.join(name)));
        }
        paths.retain(|path| path.exists());
        paths
    }

    /// Adds the digest of a source file and of the files that it includes.
    fn add_file(&mut self, path: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let file = self.scan(path)?;
        let (digest, includes) = (file.digest.clone(), file.includes.clone());
        files.insert(self.relative(path), digest);
        for name in includes {
            let path = folder.join(&name);
            let bytes =
                std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            files.insert(
                self.relative(&path),
                blake3::hash(&bytes).to_hex().to_string(),
            );
        }
        Ok(())
    }

    fn scan(&mut self, path: &Path) -> Result<&SourceFile> {
        if !self.scanned.contains_key(path) {
            let fail = |error: String| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            self.scanned
                .insert(path.to_path_buf(), scan(&text).map_err(fail)?);
        }
        Ok(&self.scanned[path])
    }

    fn relative(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.to_string_lossy().replace('\\', "/")
    }
}

/// Where the modules that `path` declares without a body lie.
fn module_folder(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    match path.parent() {
        Some(parent) if ["lib", "main", "mod"].iter().any(|name| stem == *name) => {
            parent.to_path_buf()
        }
        Some(parent) => parent.join(stem),
        None => PathBuf::new(),
    }
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for name in sorted(dir)? {
        let path = dir.join(name);
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn sorted(dir: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.collect();
    names.sort();
    Ok(names)
}

fn table(path: &Path) -> Result<Table> {
    let fail = |error: String| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    text.parse()
        .map_err(|error: toml::de::Error| fail(error.to_string()))
}

/// The table below `path`; empty if there is none.
fn sub_table(table: &Table, path: &[&str]) -> Table {
    let mut table = table.clone();
    for key in path {
        match table.remove(*key) {
            Some(Value::Table(inner)) => table = inner,
            _ => return Table::new(),
        }
    }
    table
}

fn first_word(entry: &str) -> &str {
    entry.split(' ').next().unwrap_or_default()
}
