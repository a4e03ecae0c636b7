--- What each language server last said about itself.
local M = {}

---@class midspan.Status
---@field state "ready"|"silent"|"off"|"failed" of the last answer
---@field reason? string why nothing was shown

---@class midspan.EngineStatus
---@field state "loading"|"ready"|"busy"|"failed"
---@field error? string
---@field checkpoint string
---@field device string
---@field pid integer

---@class midspan.FullStatus: midspan.Status what the server answers when it is asked
---@field engine? midspan.EngineStatus
---@field engine_error? string why the engine cannot be asked

---@type table<integer, midspan.Status> by client id
local last = {}

--- Keeps a `midspan/status` notification.
---@param client_id integer
---@param status? midspan.Status
function M.remember(client_id, status)
  last[client_id] = type(status) == "table" and status or nil
end

--- Asks the server for its present status and keeps the answer.
---@param client vim.lsp.Client
---@param timeout_ms integer
---@return midspan.FullStatus?
---@return string? problem why there is no answer
function M.ask(client, timeout_ms)
  -- vim.empty_dict(): an empty Lua table would be sent as a list.
  local response, problem = client:request_sync("midspan/status", vim.empty_dict(), timeout_ms)
  if not response then
    return nil, ("the server did not answer: %s"):format(problem or "it has stopped")
  end
  if response.err then
    return nil, response.err.message
  end
  local status = response.result
  if type(status) ~= "table" then
    return nil, "the server answered without a status"
  end
  M.remember(client.id, status)
  return status
end

--- Gives why no server can be asked.
---@param bufnr? integer nil where any buffer's would do
---@return string
function M.absence(bufnr)
  local starting = vim.lsp.get_clients({ name = "midspan", bufnr = bufnr, _uninitialized = true })
  return #starting > 0 and "the language server is starting"
    or "no language server is attached; :checkhealth midspan says why"
end

--- Gives what the server last said, in one line.
---@param client vim.lsp.Client
---@return string
function M.describe(client)
  local status = last[client.id]
  if not status then
    return "the server has reported nothing yet"
  end
  return M.line(status)
end

--- Gives a status in one line.
---@param status midspan.Status
---@return string
function M.line(status)
  local reason = status.reason
  local state = tostring(status.state)
  return type(reason) == "string" and reason ~= "" and ("%s: %s"):format(state, reason) or state
end

return M
