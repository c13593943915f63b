// The bits of the nearest number of TF32.
__device__ __forceinline__ uint32_t to_tf32(const float value) {
    uint32_t found;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(found) : "f"(value));
    return found;
}
