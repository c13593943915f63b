// What a maximum by atomic_max begins as: NaN has one form, above infinity.
__device__ __forceinline__ float begin_max(const float value) {
    return value != value ? __int_as_float(0x7fffffff) : value;
}

// Takes the larger of a value and one in memory; NaN if either is. Without their sign, floats are ordered as integers
// are.
__device__ __forceinline__ void atomic_max(float* to, const float value) {
    const int bits = __float_as_int(begin_max(value));
    if (bits >= 0) atomicMax(reinterpret_cast<int*>(to), bits);
    else atomicMin(reinterpret_cast<unsigned*>(to), static_cast<unsigned>(bits));
}
