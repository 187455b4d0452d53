//! Weights from a safetensors file in Hugging Face naming.
//!
//! Input: the bytes of the file. Output: a [`WeightSource`] that widens to F32.
//! Invariants: names are found with or without the prefix `vision_model.`; other tensors of the
//! file are ignored; every fault names the tensor, what was expected and what was found.
//! Not here: opening files.

use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};

use crate::weights::{CheckpointTensor, WeightError, WeightSource};

/// What Hugging Face puts before the names of a vision tower inside a larger model.
pub(crate) const PREFIX: &str = "vision_model.";

/// A checkpoint in memory.
pub struct Checkpoint<B> {
    bytes: B,
    metadata: Metadata,
    /// Offset of the tensor data in `bytes`.
    data: usize,
}

impl<B: AsRef<[u8]> + Sync> Checkpoint<B> {
    /// Read the header and check that it agrees with the length of the file.
    pub fn new(bytes: B) -> Result<Checkpoint<B>, WeightError> {
        let (header, metadata) = SafeTensors::read_metadata(bytes.as_ref())?;
        Ok(Checkpoint {
            bytes,
            metadata,
            data: size_of::<u64>() + header,
        })
    }

    fn find(&self, tensor: &CheckpointTensor) -> Result<&TensorInfo, WeightError> {
        let info = self
            .metadata
            .info(&format!("{PREFIX}{}", tensor.name))
            .or_else(|| self.metadata.info(&tensor.name))
            .ok_or_else(|| WeightError::Missing {
                tensor: tensor.name.clone(),
            })?;
        let expected = tensor.shape.iter().map(|extent| *extent as usize);
        if !expected.eq(info.shape.iter().copied()) {
            return Err(WeightError::WrongShape {
                tensor: tensor.name.clone(),
                expected: tensor.shape.clone(),
                found: info.shape.clone(),
            });
        }
        if element_bytes(info.dtype).is_none() {
            return Err(WeightError::WrongType {
                tensor: tensor.name.clone(),
                found: format!("{:?}", info.dtype),
            });
        }
        Ok(info)
    }
}

impl<B: AsRef<[u8]> + Sync> WeightSource for Checkpoint<B> {
    fn check(&self, tensor: &CheckpointTensor) -> Result<(), WeightError> {
        self.find(tensor).map(|_| ())
    }

    fn read(
        &self,
        tensor: &CheckpointTensor,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), WeightError> {
        let info = self.find(tensor)?;
        let size = element_bytes(info.dtype).expect("`find` admits only readable types");
        let start = self.data + info.data_offsets.0 + first * size;
        let bytes = &self.bytes.as_ref()[start..start + out.len() * size];
        match info.dtype {
            Dtype::F32 => widen(bytes, out, f32::from_le_bytes),
            Dtype::F16 => widen(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            _ => widen(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        }
        Ok(())
    }
}

fn element_bytes(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::F32 => Some(4),
        Dtype::F16 | Dtype::BF16 => Some(2),
        _ => None,
    }
}

fn widen<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (element, stored) in out.iter_mut().zip(bytes.chunks_exact(N)) {
        *element = decode(stored.try_into().expect("a chunk of N bytes"));
    }
}
