// The normal distribution's share below x, for results of half types: Abramowitz and Stegun 26.2.17. Largest error:
// 2^-22.
__device__ __forceinline__ float fast_normal(const float x) {
    const float t = fast_reciprocal(1.0f + 0.23164189f * fabsf(x));
    const float series =
        t * (0.127414796f + t * (-0.142248368f + t * (0.710706871f + t * (-0.726576014f + t * 0.530702715f))));
    const float tail = series * fast_exp2(-0.72134752f * x * x);
    return x < 0.0f ? tail : 1.0f - tail;
}
