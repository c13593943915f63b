// The order of tiles: bands of so many tiles of rows; within a band tiles of rows first, so that those in flight share
// operands in L2.
__device__ __forceinline__ void tile_of(
    const int index, const int tiles_m, const int tiles_n, const int band, int& tile_m, int& tile_n
) {
    const int per_band = band * tiles_n;
    const int first = index / per_band * band;
    const int height = min(band, tiles_m - first);
    const int within = index % per_band;
    tile_m = first + within % height;
    tile_n = within / height;
}
