// Writes a number of 16 bits that other blocks wait for. Memory without a number has all bits set, which is a NaN;
// other NaNs are written instead of it.
template <typename T>
__device__ __forceinline__ void publish_half(T* to, const float value) {
    const T rounded(value);
    const unsigned short bits = value != value ? 0x7fff : *reinterpret_cast<const unsigned short*>(&rounded);
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" :: "l"(to), "h"(bits) : "memory");
}
