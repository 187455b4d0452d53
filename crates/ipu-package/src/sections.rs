//! The sections that describe: program, segment table, images, tensors, bindings, steps.
//!
//! Input: a package, or the verified bytes of a section. Output: bytes, or the parts.
//! Invariants: writer and reader of a section stand side by side and name the same columns in the
//! same order; the types do not nest, so neither does the reader.
//! Not here: words of segments, meaning of indices (`check`).

use crate::column::{ColumnReader, ColumnWriter};
use crate::error::{PackageError, SectionId};
use crate::host::{HostPlan, HostRun};
use crate::limits::{
    BINDINGS_MAX, MARKS_MAX, PIECES_MAX, RUNS_MAX, SEGMENT_WORDS_MAX, SEGMENTS_MAX, SPANS_MAX,
    STEPS_MAX, TENSORS_MAX, TILES_MAX,
};
use crate::order::{Dtype, Order};
use crate::types::{
    Binding, Mark, Package, Piece, Role, Segment, SegmentKind, Span, StepInfo, StepKind, Tensor,
    TileImage,
};

const SEGMENT_KINDS: [SegmentKind; 4] = [
    SegmentKind::Kernel,
    SegmentKind::TileProgram,
    SegmentKind::Row,
    SegmentKind::Frames,
];
const STEP_KINDS: [StepKind; 5] = [
    StepKind::Compute,
    StepKind::Exchange,
    StepKind::HostUpload,
    StepKind::HostDownload,
    StepKind::Control,
];
const ROLES: [Role; 3] = [Role::Input, Role::Parameter, Role::Output];
const DTYPES: [Dtype; 4] = [Dtype::F16, Dtype::F32, Dtype::F143, Dtype::U32];

type Result<T> = std::result::Result<T, PackageError>;

/// Place of a value in its list of codes.
fn code<T: PartialEq>(codes: &[T], value: &T) -> u32 {
    codes
        .iter()
        .position(|code| code == value)
        .expect("every value has a code") as u32
}

fn decoded<T: Copy>(reader: &ColumnReader<'_>, codes: &[T], code: u32) -> Result<T> {
    let value = codes.get(code as usize).copied();
    value.ok_or_else(|| reader.malformed("a code is unknown"))
}

pub(crate) fn put_program(package: &Package, out: &mut ColumnWriter) {
    out.texts(std::iter::once(package.device.as_str()));
    out.number(package.tiles);
}

pub(crate) fn take_program(bytes: &[u8]) -> Result<(String, u32)> {
    let mut reader = ColumnReader::new(SectionId::Program, bytes);
    let mut device = reader.texts(1)?;
    let tiles = reader.count(TILES_MAX, "more tiles than the chip has")?;
    reader.finish()?;
    Ok((device.remove(0), tiles as u32))
}

pub(crate) fn put_segments(segments: &[Segment], out: &mut ColumnWriter) {
    out.number(segments.len() as u32);
    out.column(segments.iter().map(|s| code(&SEGMENT_KINDS, &s.kind)));
    out.column(segments.iter().map(|s| s.words.len() as u32));
}

/// Kind and words of each segment.
pub(crate) fn take_segments(bytes: &[u8]) -> Result<Vec<(SegmentKind, u32)>> {
    let mut reader = ColumnReader::new(SectionId::Segments, bytes);
    let count = reader.count(SEGMENTS_MAX, "more segments than the limit")?;
    let kinds = reader.column(count)?;
    let lengths = reader.column(count)?;
    let segment = |(kind, length): (u32, u32)| {
        if length > SEGMENT_WORDS_MAX {
            return Err(reader.malformed("a segment is longer than region 0"));
        }
        Ok((decoded(&reader, &SEGMENT_KINDS, kind)?, length))
    };
    let segments = kinds.into_iter().zip(lengths).map(segment);
    let segments = segments.collect::<Result<_>>()?;
    reader.finish()?;
    Ok(segments)
}

pub(crate) fn put_images(package: &Package, out: &mut ColumnWriter) {
    let images = || package.images.iter().chain(&package.rest);
    out.number(images().count() as u32);
    out.number(package.rest.is_some().into());
    out.column(images().map(|image| image.tile));
    out.column(images().map(|image| image.entry));
    out.column(images().map(|image| image.pieces.len() as u32));
    out.column(images().map(|image| image.marks.len() as u32));
    let pieces = || images().flat_map(|image| &image.pieces);
    out.column(pieces().map(|piece| piece.address));
    out.column(pieces().map(|piece| piece.segment));
    let marks = || images().flat_map(|image| &image.marks);
    out.column(marks().map(|mark| mark.address));
    out.column(marks().map(|mark| mark.step));
}

/// Images of tiles, and the one of all other tiles.
pub(crate) fn take_images(bytes: &[u8]) -> Result<(Vec<TileImage>, Option<TileImage>)> {
    let mut reader = ColumnReader::new(SectionId::Images, bytes);
    let count = reader.count(TILES_MAX, "more images than the chip has tiles")?;
    let rest = match reader.number()? {
        0 => false,
        1 if count > 0 => true,
        _ => return Err(reader.malformed("the flag of the last image is no flag")),
    };
    let tiles = reader.column(count)?;
    let entries = reader.column(count)?;
    let (piece_counts, pieces) = reader.counts(count, PIECES_MAX, "more pieces than the limit")?;
    let (mark_counts, marks) = reader.counts(count, MARKS_MAX, "more marks than the limit")?;
    let addresses = reader.column(pieces)?.into_iter();
    let mut pieces = addresses
        .zip(reader.column(pieces)?)
        .map(|(address, segment)| Piece { address, segment });
    let addresses = reader.column(marks)?.into_iter();
    let mut marks = addresses
        .zip(reader.column(marks)?)
        .map(|(address, step)| Mark { address, step });
    reader.finish()?;
    let image = |index: usize| TileImage {
        tile: tiles[index],
        entry: entries[index],
        pieces: pieces.by_ref().take(piece_counts[index] as usize).collect(),
        marks: marks.by_ref().take(mark_counts[index] as usize).collect(),
    };
    let mut images: Vec<TileImage> = (0..count).map(image).collect();
    let rest = if rest { images.pop() } else { None };
    Ok((images, rest))
}

pub(crate) fn put_host(plan: &HostPlan, out: &mut ColumnWriter) {
    out.number(plan.slots.len() as u32);
    out.column(plan.slots.iter().copied());
    for runs in [&plan.parameters, &plan.inputs, &plan.outputs] {
        out.number(runs.len() as u32);
        out.column(runs.iter().map(|run| run.tile));
        out.column(runs.iter().map(|run| run.address));
        out.column(runs.iter().map(|run| run.bytes));
    }
}

pub(crate) fn take_host(bytes: &[u8]) -> Result<HostPlan> {
    let mut reader = ColumnReader::new(SectionId::Host, bytes);
    let count = reader.count(TILES_MAX, "more slots than the chip has tiles")?;
    let slots = reader.column(count)?;
    let parameters = take_runs(&mut reader)?;
    let inputs = take_runs(&mut reader)?;
    let outputs = take_runs(&mut reader)?;
    reader.finish()?;
    Ok(HostPlan {
        slots,
        parameters,
        inputs,
        outputs,
    })
}

fn take_runs(reader: &mut ColumnReader<'_>) -> Result<Vec<HostRun>> {
    let count = reader.count(RUNS_MAX, "more runs than the limit")?;
    let tiles = reader.column(count)?;
    let addresses = reader.column(count)?;
    let bytes = reader.column(count)?;
    let run = |index: usize| HostRun {
        tile: tiles[index],
        address: addresses[index],
        bytes: bytes[index],
    };
    Ok((0..count).map(run).collect())
}

pub(crate) fn put_tensors(tensors: &[Tensor], out: &mut ColumnWriter) {
    out.number(tensors.len() as u32);
    out.texts(tensors.iter().map(|tensor| tensor.name.as_str()));
    out.column(tensors.iter().map(|tensor| code(&ROLES, &tensor.role)));
    out.column(tensors.iter().map(|tensor| tensor.rows));
    out.column(tensors.iter().map(|tensor| tensor.columns));
    put_spans(tensors.iter().map(|tensor| &tensor.row_spans[..]), out);
    put_spans(tensors.iter().map(|tensor| &tensor.column_spans[..]), out);
}

pub(crate) fn take_tensors(bytes: &[u8]) -> Result<Vec<Tensor>> {
    let mut reader = ColumnReader::new(SectionId::Tensors, bytes);
    let count = reader.count(TENSORS_MAX, "more tensors than the limit")?;
    let names = reader.texts(count)?;
    let roles = reader.column(count)?;
    let rows = reader.column(count)?;
    let columns = reader.column(count)?;
    let mut row_spans = take_spans(&mut reader, count)?.into_iter();
    let mut column_spans = take_spans(&mut reader, count)?.into_iter();
    let tensors = names.into_iter().enumerate().map(|(index, name)| {
        Ok(Tensor {
            name,
            role: decoded(&reader, &ROLES, roles[index])?,
            rows: rows[index],
            columns: columns[index],
            row_spans: row_spans.next().unwrap_or_default(),
            column_spans: column_spans.next().unwrap_or_default(),
        })
    });
    let tensors = tensors.collect::<Result<_>>()?;
    reader.finish()?;
    Ok(tensors)
}

fn put_spans<'a>(lists: impl Iterator<Item = &'a [Span]> + Clone, out: &mut ColumnWriter) {
    out.column(lists.clone().map(|list| list.len() as u32));
    let spans = lists.flatten();
    out.column(spans.clone().map(|span| span.device));
    out.column(spans.clone().map(|span| span.logical));
    out.column(spans.map(|span| span.count));
}

fn take_spans(reader: &mut ColumnReader<'_>, lists: usize) -> Result<Vec<Vec<Span>>> {
    let (counts, spans) = reader.counts(lists, SPANS_MAX, "more spans than the limit")?;
    let device = reader.column(spans)?;
    let logical = reader.column(spans)?;
    let count = reader.column(spans)?;
    let mut spans = (0..spans).map(|index| Span {
        device: device[index],
        logical: logical[index],
        count: count[index],
    });
    let list = |count: &u32| spans.by_ref().take(*count as usize).collect();
    Ok(counts.iter().map(list).collect())
}

/// Kind and group of an order, as two numbers.
fn order_codes(order: Order) -> (u32, u32) {
    match order {
        Order::RowMajor => (0, 0),
        Order::Panels(group) => (1, group),
        Order::Blocks(group) => (2, group),
    }
}

pub(crate) fn put_bindings(bindings: &[Binding], out: &mut ColumnWriter) {
    out.number(bindings.len() as u32);
    let columns: [fn(&Binding) -> u32; 11] = [
        |b| b.tensor,
        |b| b.tile,
        |b| b.address,
        |b| code(&DTYPES, &b.dtype),
        |b| b.scale_exponent as u8 as u32,
        |b| order_codes(b.order).0,
        |b| order_codes(b.order).1,
        |b| b.row,
        |b| b.column,
        |b| b.rows,
        |b| b.columns,
    ];
    for column in columns {
        out.column(bindings.iter().map(column));
    }
}

pub(crate) fn take_bindings(bytes: &[u8]) -> Result<Vec<Binding>> {
    let mut reader = ColumnReader::new(SectionId::Bindings, bytes);
    let count = reader.count(BINDINGS_MAX, "more bindings than the limit")?;
    let mut columns: [Vec<u32>; 11] = Default::default();
    for column in &mut columns {
        *column = reader.column(count)?;
    }
    let binding = |at: usize| {
        let [
            tensor,
            tile,
            address,
            dtype,
            scale,
            order,
            group,
            row,
            column,
            rows,
            across,
        ] = std::array::from_fn(|column| columns[column][at]);
        let scale = u8::try_from(scale).map_err(|_| reader.malformed("a scale is out of range"))?;
        let order = match (order, group) {
            (0, 0) => Order::RowMajor,
            (1, group) => Order::Panels(group),
            (2, group) => Order::Blocks(group),
            _ => return Err(reader.malformed("an element order is unknown")),
        };
        Ok(Binding {
            tensor,
            tile,
            address,
            dtype: decoded(&reader, &DTYPES, dtype)?,
            scale_exponent: scale as i8,
            order,
            row,
            column,
            rows,
            columns: across,
        })
    };
    let bindings = (0..count).map(binding).collect::<Result<_>>()?;
    reader.finish()?;
    Ok(bindings)
}

pub(crate) fn put_steps(steps: &[StepInfo], out: &mut ColumnWriter) {
    out.number(steps.len() as u32);
    out.texts(steps.iter().map(|step| step.operation.as_str()));
    out.texts(steps.iter().map(|step| step.label.as_str()));
    out.column(steps.iter().map(|step| code(&STEP_KINDS, &step.kind)));
}

pub(crate) fn take_steps(bytes: &[u8]) -> Result<Vec<StepInfo>> {
    let mut reader = ColumnReader::new(SectionId::Steps, bytes);
    let count = reader.count(STEPS_MAX, "more steps than the limit")?;
    let operations = reader.texts(count)?;
    let labels = reader.texts(count)?;
    let kinds = reader.column(count)?;
    let texts = operations.into_iter().zip(labels);
    let step = |((operation, label), kind)| {
        let kind = decoded(&reader, &STEP_KINDS, kind)?;
        Ok(StepInfo {
            operation,
            label,
            kind,
        })
    };
    let steps = texts.zip(kinds).map(step).collect::<Result<_>>()?;
    reader.finish()?;
    Ok(steps)
}
