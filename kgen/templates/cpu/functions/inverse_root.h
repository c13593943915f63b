// 1 / sqrt(x), by the vector instructions.
__attribute__((always_inline)) inline float inverse_root(float x) { return 1.0f / __builtin_sqrtf(x); }
