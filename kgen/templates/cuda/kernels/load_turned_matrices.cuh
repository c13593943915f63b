// Four 8 x 8 matrices of 2 bytes an element from shared memory, each turned over: lane l has of each what lies in rows
// 2 (l % 4) and the next, column l / 4. Lane l gives the address of row l % 8 of matrix l / 8 (ldmatrix).
__device__ __forceinline__ void load_turned_matrices(uint32_t (&r)[4], const uint32_t address) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory"
    );
}
