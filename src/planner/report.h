// What `perigee plan` shows, as text: tables, a memory bar per device, a timeline; and the same as JSON.
// Pure functions; lines end in \n.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "planner/deployment.h"
#include "planner/search.h"
#include "planner/validate.h"

namespace perigee::planner {

std::string format_model(const ModelShape& shape, const WeightFormat& format);
std::string format_memory(const PoolModels& pool);
// Decode steps at growing batches and prefill steps at growing chunks, with their largest term.
std::string format_steps(const Deployment& deployment, const Plan& plan, double context);
std::string format_simulation(const SimulationResult& result, const EngineProfile& engine, bool priced);
std::string format_search(const SearchResult& result, std::size_t shown);
std::string format_validation(const std::vector<ValidationRow>& rows, const MeasurementSet& set);
std::string format_layout_checks(const std::vector<LayoutCheck>& checks);

Json to_json(const ModelShape& shape, const WeightFormat& format);
Json to_json(const MemoryReport& report);
Json to_json(const StepTime& time);
Json to_json(const SimulationResult& result);
Json to_json(const SearchResult& result);
Json to_json(const std::vector<ValidationRow>& rows);
Json to_json(const std::vector<LayoutCheck>& checks);

}  // namespace perigee::planner
