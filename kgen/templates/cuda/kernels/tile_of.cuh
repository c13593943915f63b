// The order of tiles: groups of `swizzle_group` tiles of rows; within a group, tiles of rows come first, so that tiles
// in flight share operands in L2.
__device__ __forceinline__ void tile_of(
    const int index, const int tiles_m, const int tiles_n, const int swizzle_group, int& tile_m, int& tile_n
) {
    const int per_group = swizzle_group * tiles_n;
    const int first = index / per_group * swizzle_group;
    const int height = min(swizzle_group, tiles_m - first);
    const int within = index % per_group;
    tile_m = first + within % height;
    tile_n = within / height;
}
