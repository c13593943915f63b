// What a minimum by atomic_min begins as: NaN has one form, below minus infinity.
__device__ __forceinline__ float begin_min(const float value) {
    return value != value ? __int_as_float(-1) : value;
}

// Takes the smaller of a value and one in memory; NaN if either is. Without their sign, floats are ordered as integers
// are.
__device__ __forceinline__ void atomic_min(float* to, const float value) {
    const int bits = __float_as_int(begin_min(value));
    if (bits >= 0) atomicMin(reinterpret_cast<int*>(to), bits);
    else atomicMax(reinterpret_cast<unsigned*>(to), static_cast<unsigned>(bits));
}
