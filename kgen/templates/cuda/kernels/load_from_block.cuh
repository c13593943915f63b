// What another block of the cluster has at an address of its shared memory.
__device__ __forceinline__ float4 load_from_block(const uint32_t address, const int block) {
    float4 v;
    asm volatile(
        "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5;"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];}"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address), "r"(block) : "memory"
    );
    return v;
}
