//! What a recipe was made for, and whether it still is: graph, target, policy, contracts.
//!
//! Input: the graph, the contracts by family, the parameters of `plan`. Output: digests, and the
//! faults of a recipe file against them.
//! Invariants: a component's digest is that of a key, and holds only what decisions stand on: names,
//! shapes and order of operations, but no weights; facts of the device, but no assumed times.
//! Not here: the text of recipe files (`recipe`), the planner (`plan`).

use std::collections::{BTreeMap, BTreeSet};

use ipu_ir::graph::{Graph, OpKind, Region, ValueDef};
use ipu_ir::mid::{Mid, Step};
use ipu_plan::recipe::SECTIONS;
use ipu_plan::{
    AttentionFormats, Decisions, Format, PlanError, PlannerPolicy, Precision, Recipe, build,
};
use ipu_target::{TILES, WORKERS, memory};
use ipub_base::{Digest, KeyWriter};
use ipub_engine::{FailureKind, Params, StageFailure, nearest};

use crate::codec::{from_json, unpack};
use crate::families::Families;
use crate::precision::Formats;
use crate::recipe::RecipeFile;

/// Digests of what a recipe was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub graph: Digest,
    pub target: Digest,
    pub policy: Digest,
    /// Contracts, by the families of kernels that the recipe uses.
    pub contracts: BTreeMap<String, Digest>,
    /// Assembled kernels of the same families: a change of these is only told.
    pub objects: BTreeMap<String, Digest>,
}

/// A component of a recipe's context that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Such as `policy` or `contracts.gemm`.
    pub component: String,
    /// In the file.
    pub file: Digest,
    /// Now; `None` if there is no such family.
    pub now: Option<Digest>,
}

/// Everything that a recipe is checked against.
#[derive(Debug)]
pub struct Surroundings {
    pub(crate) graph: Graph,
    pub(crate) precision: Precision,
    pub(crate) policy: PlannerPolicy,
    families: Families,
    own: [Digest; 3],
}

impl Surroundings {
    /// From the blobs `graph` of `lower` and `families` of `kernel` and the parameters of `plan`.
    pub fn read(
        device: &str,
        graph: &[u8],
        families: &[u8],
        params: &Params,
    ) -> Result<Self, StageFailure> {
        let graph: Graph = unpack("graph", graph)?;
        let families = from_json("families", families)?;
        let formats = Formats::read(params)?;
        let policy: PlannerPolicy = params.section("planner")?;
        if policy.tiles == 0 || policy.tiles > TILES {
            let tiles = policy.tiles;
            let message = format!("`planner.tiles` is {tiles}: it must be between 1 and {TILES}");
            return Err(StageFailure::usage(message));
        }
        let own = [
            graph_digest(&graph),
            target_digest(device),
            policy_digest(&formats, &policy),
        ];
        Ok(Self {
            graph,
            precision: precision(&formats),
            policy,
            families,
            own,
        })
    }

    /// The context of a recipe that is made now, without objects.
    pub fn context(&self, recipe: &Recipe) -> Result<Context, StageFailure> {
        let tiles = self.policy.tiles;
        let mid = build(&self.graph, &self.precision, recipe, tiles).map_err(refuse)?;
        let kernels = kernels(&mid);
        let used = self.families.iter().filter(|(_, family)| {
            family
                .kernels
                .iter()
                .any(|name| kernels.contains(name.as_str()))
        });
        let [graph, target, policy] = self.own;
        Ok(Context {
            graph,
            target,
            policy,
            contracts: used
                .map(|(name, family)| (name.clone(), family.digest))
                .collect(),
            objects: BTreeMap::new(),
        })
    }

    /// The components of `context` that are not as they are now.
    pub fn mismatches(&self, context: &Context) -> Vec<Mismatch> {
        let [graph, target, policy] = self.own;
        let own = [
            ("graph", context.graph, Some(graph)),
            ("target", context.target, Some(target)),
            ("policy", context.policy, Some(policy)),
        ];
        let own = own.map(|(name, file, now)| (name.to_owned(), file, now));
        let families = context.contracts.iter().map(|(name, digest)| {
            let now = self.families.get(name).map(|family| family.digest);
            (format!("contracts.{name}"), *digest, now)
        });
        own.into_iter()
            .chain(families)
            .filter(|(_, file, now)| *now != Some(*file))
            .map(|(component, file, now)| Mismatch {
                component,
                file,
                now,
            })
            .collect()
    }

    /// The file must have a context, and it must be that of now.
    pub fn check_context(&self, file: &RecipeFile) -> Result<(), StageFailure> {
        let help = format!(
            "`ipub recipe rebase {}` carries over what still applies",
            file.name
        );
        let refuse = |message: String, place: &str| {
            let mut failure = StageFailure::usage(message);
            failure.location = Some(file.place(place));
            failure.help = Some(help.clone());
            Err(failure)
        };
        let Some(context) = &file.context else {
            return refuse("the recipe has no [context]".to_owned(), "context");
        };
        let mismatches = self.mismatches(context);
        let Some(first) = mismatches.first() else {
            return Ok(());
        };
        let names: Vec<_> = mismatches
            .iter()
            .map(|one| one.component.as_str())
            .collect();
        let mut message = format!("the recipe was made for another {}", names.join(", "));
        for one in &mismatches {
            let now = one.now.map_or("absent".to_owned(), |now| now.hex());
            let component = &one.component;
            message += &format!("\n  {component}\n    file {}\n    now  {now}", one.file);
        }
        refuse(message, &format!("context.{}", first.component))
    }

    /// Every name of the file must be a decision of the graph, and every decision must be there.
    pub fn check_names(&self, file: &RecipeFile) -> Result<(), StageFailure> {
        let names = Decisions::of(&self.graph, &self.precision);
        let mut faults = Vec::new();
        for (section, lines) in file.recipe.lines() {
            let known = names.section(section);
            for name in lines.keys().filter(|name| !known.contains(**name)) {
                let help = match nearest(name, known.iter().map(String::as_str))[..] {
                    [] => format!("[{section}] has {}", listed(known.iter())),
                    ref near => format!("did you mean {}?", near.join(" or ")),
                };
                let message = format!("[{section}] of this graph has no `{name}`");
                faults.push((file.place(&format!("{section}.{name}")), message, help));
            }
        }
        for section in SECTIONS {
            let lines = file.recipe.lines();
            let given = lines.iter().find(|(name, _)| *name == section);
            let missing: Vec<_> = names
                .section(section)
                .iter()
                .filter(|name| given.is_none_or(|(_, lines)| !lines.contains_key(name.as_str())))
                .collect();
            if !missing.is_empty() {
                let message = format!("[{section}] lacks {}", listed(missing.into_iter()));
                let help = format!("`ipub recipe rebase {}` fills it in", file.name);
                faults.push((file.place(section), message, help));
            }
        }
        let mut faults = faults.into_iter();
        let Some((place, mut message, help)) = faults.next() else {
            return Ok(());
        };
        for (place, other, _) in faults {
            message += &format!("\n{place}: {other}");
        }
        let mut failure = StageFailure::usage(message);
        failure.location = Some(place);
        failure.help = Some(help);
        Err(failure)
    }

    /// Everything that can be wrong with a recipe file, before anything is built by it; gives its
    /// mid.
    pub fn check(&self, file: &RecipeFile) -> Result<Mid, StageFailure> {
        self.check_context(file)?;
        self.check_names(file)?;
        let mid = build(
            &self.graph,
            &self.precision,
            &file.recipe,
            self.policy.tiles,
        );
        mid.map_err(|error| {
            let operation = match &error {
                PlanError::Illegal { operation, .. } => operation.clone(),
                _ => String::new(),
            };
            let mut failure = refuse(error);
            let is_product = file.recipe.gemm.contains_key(&operation);
            let section = if is_product { "gemm" } else { "attention" };
            failure.location = Some(file.place(&format!("{section}.{operation}")));
            failure
        })
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "nothing".to_owned(),
        false => names.join(", "),
    }
}

/// A failure of the planner for the user.
pub(crate) fn refuse(error: PlanError) -> StageFailure {
    match error {
        PlanError::Mid(_) => StageFailure::bug(error.to_string()),
        PlanError::Fault { .. } => StageFailure::new(FailureKind::DeviceFault, error.to_string()),
        _ => StageFailure::usage(error.to_string()),
    }
}

fn kernels(mid: &Mid) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut open = vec![mid.steps.as_slice()];
    while let Some(steps) = open.pop() {
        for step in steps {
            match step {
                Step::Compute(compute) => {
                    found.insert(compute.kernel.as_str());
                }
                Step::Repeat { body, .. } => open.push(body),
                Step::Exchange(_) => {}
            }
        }
    }
    found
}

fn precision(formats: &Formats) -> Precision {
    let format = |scale: Option<i8>| scale.map_or(Format::F16, Format::F143);
    let attention = |qk, pv| AttentionFormats {
        qk: format(qk),
        pv: format(pv),
    };
    Precision {
        embed: format(formats.embed),
        dense: format(formats.dense),
        attention: attention(formats.attention_qk, formats.attention_pv),
        map: attention(formats.map_qk, formats.map_pv),
    }
}

/// Facts that decide what fits and what moves where.
fn target_digest(device: &str) -> Digest {
    let mut writer = KeyWriter::digest_only("ipub.recipe.target");
    writer.text("device", device);
    writer.u64("tiles", TILES.into());
    writer.u64("workers", WORKERS.into());
    writer.u64("memory.data_base", memory::DATA_BASE.into());
    writer.u64("memory.region_boundary", memory::REGION_BOUNDARY.into());
    writer.u64("memory.loader_limit", memory::LOADER_LIMIT.into());
    writer.u64("memory.element_bytes", memory::ELEMENT_BYTES.into());
    writer.u64("memory.pair_bytes", memory::ELEMENT_PAIR_BYTES.into());
    writer.u64("memory.aperture.start", memory::APERTURE.start.into());
    writer.u64("memory.aperture.end", memory::APERTURE.end.into());
    writer.finish().digest
}

fn policy_digest(formats: &Formats, policy: &PlannerPolicy) -> Digest {
    let mut writer = KeyWriter::digest_only("ipub.recipe.policy");
    for (name, scale) in [
        ("embed", formats.embed),
        ("dense", formats.dense),
        ("attention.qk", formats.attention_qk),
        ("attention.pv", formats.attention_pv),
        ("map.qk", formats.map_qk),
        ("map.pv", formats.map_pv),
    ] {
        match scale {
            Some(scale) => writer.i64(name, scale.into()),
            None => writer.absent(name),
        }
    }
    writer.u64("planner.tiles", policy.tiles.into());
    writer.list(
        "planner.operand_limits",
        &policy.operand_limits,
        |writer, limit| writer.u64("bytes", (*limit).into()),
    );
    writer.finish().digest
}

/// The graph as decisions see it. Where parameters come from and how random ones are drawn is left
/// out.
fn graph_digest(graph: &Graph) -> Digest {
    let mut writer = KeyWriter::digest_only("ipub.recipe.graph");
    writer.u64("batch", graph.batch.into());
    writer.list("values", &graph.values, |writer, value| {
        writer.text("name", &value.name);
        writer.list("shape", &value.shape, |writer, extent| {
            writer.u64("extent", (*extent).into());
        });
        match &value.def {
            ValueDef::Input => writer.text("is", "input"),
            ValueDef::Param(_) => writer.text("is", "parameter"),
            ValueDef::Result(op) => writer.u64("result of", op.0.into()),
            ValueDef::Carried { index } => writer.u64("carried", (*index).into()),
            ValueDef::Iterated { index } => writer.u64("iterated", (*index).into()),
        }
    });
    writer.list("ops", &graph.ops, |writer, op| {
        writer.text("name", &op.name);
        operation(writer, &op.kind);
        writer.list("results", &op.results, |writer, value| {
            writer.u64("value", value.0.into());
        });
    });
    writer.scope("top", |writer| region(writer, &graph.top));
    writer.finish().digest
}

fn operation(writer: &mut KeyWriter, kind: &OpKind) {
    let word = match kind {
        OpKind::Gemm { .. } => "gemm",
        OpKind::Bias { .. } => "bias",
        OpKind::Add { .. } => "add",
        OpKind::LayerNorm { .. } => "layer norm",
        OpKind::SliceColumns { .. } => "slice columns",
        OpKind::SplitHeads { .. } => "split heads",
        OpKind::Attention { .. } => "attention",
        OpKind::JoinHeads { .. } => "join heads",
        OpKind::Gelu { .. } => "gelu",
        OpKind::Repeat { .. } => "repeat",
    };
    writer.text("kind", word);
    writer.list("operands", &kind.operands(), |writer, value| {
        writer.u64("value", value.0.into());
    });
    match kind {
        OpKind::LayerNorm { epsilon, .. } => writer.f64("epsilon", f64::from(*epsilon)),
        OpKind::Attention { scale, .. } => writer.f64("scale", f64::from(*scale)),
        OpKind::SliceColumns { first, columns, .. } => {
            writer.u64("first", (*first).into());
            writer.u64("columns", (*columns).into());
        }
        OpKind::SplitHeads { heads, .. } => writer.u64("heads", (*heads).into()),
        OpKind::Repeat { count, body, .. } => {
            writer.u64("count", (*count).into());
            writer.scope("body", |writer| region(writer, body));
        }
        OpKind::Gemm { .. }
        | OpKind::Bias { .. }
        | OpKind::Add { .. }
        | OpKind::JoinHeads { .. }
        | OpKind::Gelu { .. } => {}
    }
}

fn region(writer: &mut KeyWriter, region: &Region) {
    for (name, values) in [("args", &region.args), ("yields", &region.yields)] {
        writer.list(name, values, |writer, value| {
            writer.u64("value", value.0.into());
        });
    }
    writer.list("ops", &region.ops, |writer, op| {
        writer.u64("op", op.0.into());
    });
}
