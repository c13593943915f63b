// Describes an operand of wgmma whose rows are columns in memory: boxes of 64 rows, 8 KB apart, each with 64 of k below
// each other in lines of 128 bytes, swizzled as TMA's 128-byte mode leaves them. Start address, leading offset (from
// box to box) and stride (from 8 of k to the next) in units of 16 bytes, and the swizzle mode.
__device__ __forceinline__ uint64_t turned_descriptor(const uint32_t address) {
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (512ull << 16) | (64ull << 32) | (1ull << 62);
}
