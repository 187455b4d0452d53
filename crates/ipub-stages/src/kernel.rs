//! Stage `kernel`: assembly and contracts to objects.
//!
//! Input: `sources` (all files below `kernels/`). Outputs: `objects` (postcard, by kernel name),
//! `contracts` (JSON, by kernel name, without what only tests and people read), `families` (JSON:
//! digests of contracts by family).
//! Invariants: no output depends on comments, cases or summaries.

use std::collections::BTreeMap;

use ipu_emit::asm::{AsmErrors, Options, Source, assemble};
use ipu_emit::object::Object;
use ipu_ir::contract::{Contract, ContractError, Family};
use ipub_base::{Digest, KeyWriter, Location};
use ipub_engine::{InputFile, StageFailure, StageInputs, StageOutputs};

use crate::codec::{pack, to_json, unpack};
use crate::families::{Families, family};
use crate::fingerprint::fingerprint;
use crate::stage::Stage;

pub(crate) const STAGE: Stage = Stage::new("kernel", run);

const CONTRACT_FILE: &str = "kernel.toml";

fn run(inputs: &StageInputs<'_>) -> Result<StageOutputs, StageFailure> {
    let files = inputs.files("sources")?;
    let by_name: BTreeMap<&str, &InputFile> = files
        .iter()
        .map(|file| (file.name.as_str(), file))
        .collect();
    let mut objects: BTreeMap<String, Object> = BTreeMap::new();
    let mut contracts: BTreeMap<String, Contract> = BTreeMap::new();
    let mut families: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let family_files: Vec<&InputFile> = files
        .iter()
        .filter(|file| file.name.rsplit('/').next() == Some(CONTRACT_FILE))
        .collect();
    for (index, family) in family_files.iter().enumerate() {
        let folder = &family.name[..family.name.len() - CONTRACT_FILE.len()];
        inputs.progress(folder, index as u64, family_files.len() as u64);
        let text = text(inputs, family)?;
        let parsed = Family::parse(&text).map_err(|error| refuse(error, &family.name, &text))?;
        for mut contract in parsed.kernels {
            let path = format!("{folder}{}", contract.source);
            let Some(source) = by_name.get(path.as_str()) else {
                let message = format!("kernel {}: there is no {path}", contract.name);
                return Err(at(StageFailure::usage(message), &family.name, 0, 0));
            };
            objects.insert(
                contract.name.clone(),
                object(inputs, source, &contract.name)?,
            );
            contract.cases.clear();
            contract.summary.clear();
            contract.source.clear();
            let name = contract.name.clone();
            let names = families.entry(parsed.family.clone()).or_default();
            names.push(name.clone());
            if contracts.insert(name.clone(), contract).is_some() {
                let message = format!("kernel {name} is declared twice");
                return Err(at(StageFailure::usage(message), &family.name, 0, 0));
            }
        }
    }
    let count = objects.len();
    Ok(StageOutputs::new()
        .with("objects", pack("objects", &objects)?)
        .with("contracts", to_json("contracts", &contracts)?)
        .with(
            "families",
            to_json("families", &digests(&families, &contracts)?)?,
        )
        .note("kernels", count))
}

fn digests(
    families: &BTreeMap<String, Vec<String>>,
    contracts: &BTreeMap<String, Contract>,
) -> Result<Families, StageFailure> {
    let one = |(name, kernels): (&String, &Vec<String>)| {
        let of_family = kernels
            .iter()
            .map(|kernel| (kernel.as_str(), &contracts[kernel]));
        let family = family(&of_family.collect());
        let bug = || StageFailure::bug(format!("contracts of {name} cannot be written"));
        Ok((name.clone(), family.ok_or_else(bug)?))
    };
    families.iter().map(one).collect()
}

fn text(inputs: &StageInputs<'_>, file: &InputFile) -> Result<String, StageFailure> {
    String::from_utf8(inputs.read(file)?)
        .map_err(|_| StageFailure::usage(format!("{}: the text is not UTF-8", file.name)))
}

/// The object of one source file, remembered by its text.
fn object(
    inputs: &StageInputs<'_>,
    file: &InputFile,
    kernel: &str,
) -> Result<Object, StageFailure> {
    const MEMO: &str = "object";
    let mut key = KeyWriter::digest_only("ipub.kernel.object");
    key.digest("code", fingerprint(STAGE.name));
    key.digest("source", file.digest);
    let key: Digest = key.finish().digest;
    let known = inputs.memo().get(MEMO, key);
    let object = match known.and_then(|bytes| unpack(MEMO, &bytes).ok()) {
        Some(object) => object,
        None => {
            let text = text(inputs, file)?;
            let name = file.name.as_str();
            let assembly = assemble(Source { name, text: &text }, &Options::default())
                .map_err(|errors| refuse_assembly(&errors))?;
            inputs.memo().put(MEMO, key, pack(MEMO, &assembly.object)?);
            assembly.object
        }
    };
    if object.symbol(kernel).is_none_or(|symbol| !symbol.global) {
        let message = format!("it defines no global symbol `{kernel}`, which its contract names");
        return Err(at(StageFailure::usage(message), &file.name, 0, 0));
    }
    Ok(object)
}

fn at(mut failure: StageFailure, file: &str, line: u32, column: u32) -> StageFailure {
    failure.location = Some(Location {
        file: file.to_owned(),
        line,
        column,
    });
    failure
}

fn refuse(error: ContractError, file: &str, text: &str) -> StageFailure {
    let message = match &error {
        ContractError::Toml(error) => error.message().to_owned(),
        other => other.to_string(),
    };
    let mut failure = at(StageFailure::usage(message), file, 0, 0);
    if let ContractError::Toml(error) = &error
        && let Some(span) = error.span()
    {
        failure.location = Some(Location::of_offset(file, text, span.start));
    }
    failure
}

/// The first fault with its place; the others below it.
fn refuse_assembly(errors: &AsmErrors) -> StageFailure {
    let Some((first, rest)) = errors.0.split_first() else {
        return StageFailure::bug("the assembler failed without a fault");
    };
    let mut message = first.reason.clone();
    if !first.statement.is_empty() {
        message += &format!("\n    {}", first.statement);
    }
    for context in &first.context {
        message += &format!("\n    in {context}");
    }
    for error in rest {
        message += &format!("\n{error}");
    }
    at(
        StageFailure::usage(message),
        &first.file,
        first.line,
        first.column,
    )
}
