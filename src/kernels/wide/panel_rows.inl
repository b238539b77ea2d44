// Rows that a product of many tokens takes at a time.
#include "kernels/kernels.h"
#include "kernels/wide/fetch.inl"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kPanelRows = 16;

// Rows first, first + apart, ... of a matrix and of y. The next panel's rows lie `next` rows behind.
struct PanelRows {
  std::int64_t first;
  std::int64_t count;
  std::int64_t apart;
  std::int64_t next;
};

// Rows first, first + apart, ... as a matrix of their own; not for scales of blocks of rows.
inline Matrix rows_apart(const Matrix& w, std::int64_t first, std::int64_t count, std::int64_t apart) {
  Matrix part = w.slice_rows(first, count);
  part.row_bytes *= apart;
  part.scale_row_bytes *= apart;
  return part;
}

// Panels of all rows in [begin, end). With few tokens, whose bound is memory, the rows of a panel are far apart, so
// that each is a long stream, in which neighbouring rows follow one another: in pieces of a row's length the hardware
// starts anew at each row, which costs a quarter of the bandwidth where rows are 4 KiB. With many tokens neighbouring
// rows are better: they share lines of y.
template <typename Run>
void for_panels(std::int64_t begin, std::int64_t end, bool far_apart, Run run) {
  std::int64_t panels = far_apart ? (end - begin) / kPanelRows : 0;
  if (panels > 0 && panels % 2 == 0) --panels;  // odd, or the rows of a panel would share a few sets of L2
  for (std::int64_t i = 0; i < panels; ++i) run(PanelRows{begin + i, kPanelRows, panels, 1});
  for (std::int64_t row = begin + panels * kPanelRows; row < end; row += kPanelRows) {
    run(PanelRows{row, end - row < kPanelRows ? end - row : kPanelRows, 1, kPanelRows});
  }
}

// Asks for `bytes` of each row of a panel, `ahead` bytes behind column byte `at`, a few lines at each of `calls` calls.
class PanelPrefetch {
 public:
  PanelPrefetch(const Matrix& w, const PanelRows& rows, std::int64_t at, std::int64_t ahead, std::int64_t bytes,
                std::int64_t calls)
      : at_(w.data + rows.first * w.row_bytes + at + ahead),
        stride_(rows.apart * w.row_bytes),
        lines_((bytes + 63) / 64),
        left_(lines_ * rows.count),
        step_(left_ / (calls > 0 ? calls : 1) + 1) {}
  void advance() {
    for (std::int64_t i = 0; i < step_ && left_ > 0; ++i, --left_) {
      fetch_to_l2(at_ + 64 * line_);
      if (++line_ == lines_) {
        line_ = 0;
        at_ += stride_;
      }
    }
  }

 private:
  const std::byte* at_;
  std::int64_t stride_;
  std::int64_t lines_;
  std::int64_t line_ = 0;
  std::int64_t left_;
  std::int64_t step_;
};

}  // namespace
}  // namespace perigee::PERIGEE_PATH
