namespace perigee::PERIGEE_PATH {
namespace {

// Asks for the next panel's bytes a few lines at a time while the tiles of this one compute: the hardware follows one
// row, not sixteen short pieces.
class PanelPrefetch {
 public:
  PanelPrefetch(const Matrix& w, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t block,
                std::int64_t calls) {
    if (rows <= 0) return;
    const std::int64_t columns = w.cols - k < block ? w.cols - k : block;
    lines_ = (columns * w.row_bytes / w.cols + 63) / 64;
    at_ = w.data + row * w.row_bytes + k * w.row_bytes / w.cols;
    stride_ = w.row_bytes;
    left_ = lines_ * rows;
    step_ = left_ / (calls > 0 ? calls : 1) + 1;
  }
  void advance() {
    for (std::int64_t i = 0; i < step_ && left_ > 0; ++i, --left_) {
      _mm_prefetch(reinterpret_cast<const char*>(at_ + 64 * line_), _MM_HINT_T1);
      if (++line_ == lines_) {
        line_ = 0;
        at_ += stride_;
      }
    }
  }

 private:
  const std::byte* at_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t lines_ = 0;
  std::int64_t line_ = 0;
  std::int64_t left_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace
}  // namespace perigee::PERIGEE_PATH
