//! `cargo xtask package`: makes the package of every published crate, as `cargo publish` would, and its documentation,
//! as docs.rs would.

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::{Outcome, shell};

/// Files that every package has.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Makes packages and documentation of the published crates, and checks their contents.
#[derive(Args)]
#[command(after_help = "Example:\n  cargo xtask package --build")]
pub(crate) struct Options {
    /// Build each package by itself, as its users do; this takes minutes
    #[arg(long)]
    build: bool,
}

/// The metadata of the workspace, from cargo.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The manifest of a package.
#[derive(Deserialize)]
struct Package {
    name: String,
    /// Registries to which it may be published; `None`: all.
    publish: Option<Vec<String>>,
    description: Option<String>,
    license: Option<String>,
    rust_version: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    targets: Vec<Target>,
    /// The manifest's data for other programs, such as docs.rs.
    #[serde(default)]
    metadata: serde_json::Value,
}

/// A build target of a package.
#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl Package {
    fn is_library(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }

    /// Whether docs.rs builds it without its default features.
    fn is_documented_bare(&self) -> bool {
        self.metadata["docs"]["rs"]["no-default-features"] == true
    }

    fn is_meant_for_others(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// The fields that its manifest lacks.
    fn missing(&self) -> Vec<&'static str> {
        let has = [
            ("description", self.description.is_some()),
            ("license", self.license.is_some()),
            ("rust-version", self.rust_version.is_some()),
            ("keywords (1 to 5)", (1..=5).contains(&self.keywords.len())),
            ("categories", !self.categories.is_empty()),
        ];
        has.into_iter().filter(|(_, has)| !has).map(|(key, _)| key).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let mut faults = 0;
    let packages = published()?;
    for package in &packages {
        for key in package.missing() {
            println!("{}: Cargo.toml lacks {key}", package.name);
            faults += 1;
        }
        for file in missing_files(&package.name)? {
            println!("{}: {file} is not in the package; link or write it", package.name);
            faults += 1;
        }
    }
    let mut package = shell::cargo();
    package.args(["package", "--quiet", "--allow-dirty"]);
    package.args(packages.iter().flat_map(|package| ["-p", &package.name]));
    if !options.build {
        package.arg("--no-verify");
    }
    let Outcome::Passed = shell::outcome(&mut package)? else { return Ok(Outcome::Failed) };
    let libraries = packages.iter().filter(|package| package.is_library());
    let (bare, full): (Vec<_>, Vec<_>) =
        libraries.partition(|package| package.is_documented_bare());
    for (packages, features) in [(full, &[][..]), (bare, &["--no-default-features"])] {
        let Outcome::Passed = document(&packages, features)? else { return Ok(Outcome::Failed) };
    }
    Ok(if faults == 0 { Outcome::Passed } else { Outcome::Failed })
}

/// Builds the documentation of `packages`; a warning counts as a failure.
fn document(packages: &[&Package], features: &[&str]) -> Result<Outcome> {
    let mut doc = shell::cargo();
    let given = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
    doc.env("RUSTDOCFLAGS", format!("{given} -D warnings").trim());
    doc.args(["doc", "--quiet", "--no-deps"]).args(features);
    doc.args(packages.iter().flat_map(|package| ["-p", &package.name]));
    shell::outcome(&mut doc)
}

/// The packages of the workspace that are published.
fn published() -> Result<Vec<Package>> {
    let mut command = shell::cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = shell::output(&mut command)?.map_err(anyhow::Error::msg)?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata is not read")?;
    Ok(metadata.packages.into_iter().filter(Package::is_meant_for_others).collect())
}

/// Those of [`FILES`] that a package lacks.
fn missing_files(package: &str) -> Result<Vec<&'static str>> {
    let mut command = shell::cargo();
    command.args(["package", "--quiet", "--allow-dirty", "--list", "-p", package]);
    let files = shell::output(&mut command)?.map_err(anyhow::Error::msg)?;
    Ok(FILES.into_iter().filter(|file| !files.lines().any(|line| line == *file)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_meant_for_others_unless_it_says_otherwise() {
        let package = |publish: &str| -> Package {
            let text = format!(
                r#"{{"name": "a", "publish": {publish}, "description": "b", "license": null, "rust_version": null,
                "keywords": ["c"]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert!(package("null").is_meant_for_others());
        assert!(!package("[]").is_meant_for_others());
        assert_eq!(package("[]").missing(), ["license", "rust-version", "categories"]);
    }

    #[test]
    fn crates_of_the_product_are_published_and_no_others() {
        let mut names: Vec<String> = published().unwrap().into_iter().map(|p| p.name).collect();
        names.sort();
        let product = std::fs::read_dir(shell::root().join("crates")).unwrap();
        let mut folders: Vec<String> =
            product.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        folders.sort();
        assert_eq!(names, folders);
    }
}
