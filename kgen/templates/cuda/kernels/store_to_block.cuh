// Stores at an address of the shared memory of another block of the cluster.
__device__ __forceinline__ void store_to_block(const uint32_t address, const int block, const float4 v) {
    asm volatile(
        "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;"
        "st.shared::cluster.v4.f32 [remote], {%2, %3, %4, %5};}"
        :: "r"(address), "r"(block), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"
    );
}
