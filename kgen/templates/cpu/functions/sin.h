// The sine of x. Largest error over all floats: 1.5 ulp.
__attribute__((always_inline)) inline float sin(float x) {
    return x == 0.0f ? x : sin_shifted(x, 0);  // keeps the sign of zero
}
