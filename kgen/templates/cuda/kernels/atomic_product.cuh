// Multiplies a value in memory by another.
__device__ __forceinline__ void atomic_product(float* to, const float value) {
    unsigned* at = reinterpret_cast<unsigned*>(to);
    unsigned before, seen = *at;
    do {
        before = seen;
        seen = atomicCAS(at, before, __float_as_uint(__uint_as_float(before) * value));
    } while (seen != before);
}
