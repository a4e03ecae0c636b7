--- Withdraws what a buffer still waits for from a method of the server.
---@param client vim.lsp.Client
---@param bufnr integer
---@param method string
return function(client, bufnr, method)
  for id, request in pairs(client.requests) do
    if request.type == "pending" and request.method == method and request.bufnr == bufnr then
      client:cancel_request(id)
    end
  end
end
