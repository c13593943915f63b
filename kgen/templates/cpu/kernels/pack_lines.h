// Packs `lines` lines of k elements, step apart, as columns of panels of W; columns beyond them are zeros.
template <int W>
static void pack_lines(const float* from, const long long step, const int lines, const int k, float* panels) {
    for (int first = 0; first < lines; first += 16) {
        float* const to = panels + first / W * W * k + first % W;
        int at = 0;
        for (; first + 16 <= lines && at + 16 <= k; at += 16) {
            turn_block<W>(from + first * step + at, step, to + at * W);
        }
        for (; at < k; ++at) {
            for (int i = 0; i < 16; ++i) to[at * W + i] = first + i < lines ? from[(first + i) * step + at] : 0.0f;
        }
    }
    for (int first = (lines + 15) / 16 * 16; first % W; first += 16) {
        for (int at = 0; at < k; ++at) {
            for (int i = 0; i < 16; ++i) panels[first / W * W * k + at * W + first % W + i] = 0.0f;
        }
    }
}
