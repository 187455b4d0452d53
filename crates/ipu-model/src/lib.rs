//! Model specification to graph; weight names; checkpoint mapping; FP32 reference.
