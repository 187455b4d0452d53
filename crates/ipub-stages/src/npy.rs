//! Arrays of F32 as npy files.
//!
//! Invariants: writing gives the same bytes for the same array; F32 and F64 can be read, in C order.

use npyz::{DType, NpyFile, Order, WriterBuilder};

/// An array in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Elements.
    pub elements: Vec<f32>,
}

/// Why a file is no array that can be read.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    #[error("it is not an npy file: {0}")]
    Malformed(#[from] std::io::Error),
    #[error("it holds {0}; F32 and F64 can be read")]
    Type(String),
    #[error("it is in Fortran order; C order can be read")]
    FortranOrder,
}

impl Array {
    /// The bytes of an npy file.
    pub fn to_npy(&self) -> Result<Vec<u8>, NpyError> {
        let mut bytes = Vec::with_capacity(128 + 4 * self.elements.len());
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&self.shape)
            .writer(&mut bytes)
            .begin_nd()?;
        writer.extend(self.elements.iter().copied())?;
        writer.finish()?;
        Ok(bytes)
    }

    /// The array in the bytes of an npy file.
    pub fn from_npy(bytes: &[u8]) -> Result<Self, NpyError> {
        let file = NpyFile::new(bytes)?;
        let shape = file.shape().to_vec();
        if file.order() == Order::Fortran && shape.len() > 1 {
            return Err(NpyError::FortranOrder);
        }
        let descriptor = match file.dtype() {
            DType::Plain(plain) => plain.to_string(),
            other => other.descr(),
        };
        let elements = match descriptor.trim_matches('\'') {
            "<f4" => file.into_vec::<f32>()?,
            "<f8" => {
                let wide = file.into_vec::<f64>()?;
                wide.into_iter().map(|element| element as f32).collect()
            }
            other => return Err(NpyError::Type(other.to_owned())),
        };
        Ok(Self { shape, elements })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back() {
        let array = Array {
            shape: vec![2, 1, 3],
            elements: vec![0.0, -1.5, f32::INFINITY, 1e-9, 2.0, 3.0],
        };
        let bytes = array.to_npy().unwrap();
        assert_eq!(Array::from_npy(&bytes).unwrap(), array);
        assert!(Array::from_npy(b"PK").is_err());
        assert!(Array::from_npy(&bytes[..bytes.len() - 1]).is_err());
    }
}
