// cos(x) = sin(x + pi / 2), see sin_shifted. Largest error: 1.5 ulp.
__attribute__((always_inline)) inline float cos(float x) { return sin_shifted(x, 1); }
