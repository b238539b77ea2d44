#include "engine/branch.h"

#include <algorithm>

#include "base/checked.h"

namespace perigee {

bool Branch::prepare_pages(PagePool& pool, std::int64_t count) {
  const std::int64_t first = computed / kPageTokens;
  const std::int64_t needed = ceil_div(computed + count, kPageTokens);
  while (static_cast<std::int64_t>(pages.size()) < needed) {
    PageRef page = pool.allocate();
    if (!page) return false;
    page_pointers.push_back(page.data());
    pages.push_back(std::move(page));
  }
  for (std::int64_t i = first; i < needed; ++i) {
    PageRef& page = pages[static_cast<std::size_t>(i)];
    if (!page.shared()) continue;
    if (!pool.make_private(page)) return false;
    page_pointers[static_cast<std::size_t>(i)] = page.data();
  }
  return true;
}

void Branch::start_state(const StateLayout& layout) {
  std::fill_n(recurrent.ensure(layout.recurrent_floats), layout.recurrent_floats, 0.0F);
  computed = 0;
}

void Branch::drop_state() {
  pages.clear();
  page_pointers.clear();
  recurrent = Buffer<float>();
  final_row.clear();
  computed = 0;
}

void Branch::fork_from(const Branch& other, const StateLayout& layout) {
  pages = other.pages;
  page_pointers = other.page_pointers;
  computed = other.computed;
  final_row = other.final_row;
  std::copy_n(other.recurrent.data(), layout.recurrent_floats, recurrent.ensure(layout.recurrent_floats));
}

}  // namespace perigee
